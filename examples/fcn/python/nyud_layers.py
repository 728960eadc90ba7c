"""NYUDv2's pictures, depths and labels."""
import numpy as np

from segmentation import SegDataLayer, read_mat, read_picture


class NYUDSegDataLayer(SegDataLayer):
    """nyud_dir: the folder. tops: some of color, depth, hha and label. Labels need SciPy, depths Pillow."""

    def split_file(self):
        return self.folder('nyud_dir') / f"{self.options['split']}.txt"

    def read_color(self, index):
        return read_picture(self.folder('nyud_dir') / f'data/images/img_{index}.png', (116.190, 97.203, 92.318))

    def read_hha(self, index):
        return read_picture(self.folder('nyud_dir') / f'data/hha/img_{index}.png', (118.477, 94.076, 132.431))[::-1]

    def read_depth(self, index):
        from PIL import Image
        with Image.open(self.folder('nyud_dir') / f'data/depth/img_{index}.png') as image:
            return np.log(np.asarray(image, np.float32))[np.newaxis] - 7.844

    def read_label(self, index):
        labels = read_mat(self.folder('nyud_dir') / f'segmentation/img_{index}.mat', 'segmentation').astype(int)
        return np.where(labels == 0, 255, labels - 1)[np.newaxis]   # 0, without a class, does not count

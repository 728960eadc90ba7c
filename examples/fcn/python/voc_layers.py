"""Pascal VOC's pictures and labels, and those of SBD, which has labels for more of VOC's pictures."""
from segmentation import SegDataLayer, read_mat, read_palette_labels, read_picture

MEAN = (104.00699, 116.66877, 122.67892)


class VOCSegDataLayer(SegDataLayer):
    """voc_dir: VOC2011 or another year's folder."""

    def split_file(self):
        return self.folder('voc_dir') / f"ImageSets/Segmentation/{self.options['split']}.txt"

    def read_data(self, index):
        return read_picture(self.folder('voc_dir') / f'JPEGImages/{index}.jpg', self.options.get('mean', MEAN))

    def read_label(self, index):
        return read_palette_labels(self.folder('voc_dir') / f'SegmentationClass/{index}.png')


class SBDDSegDataLayer(SegDataLayer):
    """sbdd_dir: the folder `dataset` of SBD. Needs SciPy."""

    def split_file(self):
        return self.folder('sbdd_dir') / f"{self.options['split']}.txt"

    def read_data(self, index):
        return read_picture(self.folder('sbdd_dir') / f'img/{index}.jpg', self.options.get('mean', MEAN))

    def read_label(self, index):
        return read_mat(self.folder('sbdd_dir') / f'cls/{index}.mat', 'GTcls')[0]['Segmentation'][0][None]

"""VOC2010's pictures with the 59 classes of PASCAL-Context."""
import numpy as np

from segmentation import SegDataLayer, read_mat, read_picture

OTHER_NAMES = {'diningtable': 'table', 'bedcloth': 'bedclothes', 'clothes': 'cloth'}   # of the list of 59, in the list of all


def read_names(path):
    """The names of a list with lines 'number: name'."""
    return [line.split(':', 1)[1].replace(' ', '') for line in path.read_text().splitlines() if ':' in line]


class PASCALContextSegDataLayer(SegDataLayer):
    """voc_dir: the folder that holds VOC2010. context_dir: that of the labels. Label 0 is the background. Needs SciPy."""

    def split_file(self):
        return self.folder('voc_dir') / f"VOC2010/ImageSets/Main/{self.options['split']}.txt"

    def read_data(self, index):
        return read_picture(self.folder('voc_dir') / f'VOC2010/JPEGImages/{index}.jpg', (104.007, 116.669, 122.679))

    def read_label(self, index):
        of_all = read_names(self.folder('context_dir') / 'labels.txt')
        wanted = [OTHER_NAMES.get(name, name) for name in read_names(self.folder('context_dir') / '59_labels.txt')]
        number = np.zeros(len(of_all) + 1, int)
        for label, name in enumerate(wanted, 1):
            number[of_all.index(name) + 1] = label
        return number[read_mat(self.folder('context_dir') / f'trainval/{index}.mat', 'LabelMap').astype(int)][np.newaxis]

"""SIFT Flow's pictures, and two labels for each pixel."""
import numpy as np

from segmentation import SegDataLayer, read_mat, read_picture

FOLDER = 'spatial_envelope_256x256_static_8outdoorcategories'


class SIFTFlowSegDataLayer(SegDataLayer):
    """siftflow_dir: the folder. The tops are the picture, the semantic label and the geometric one. Needs SciPy."""

    tops = ('data', 'sem', 'geo')

    def split_file(self):
        return self.folder('siftflow_dir') / f"{self.options['split']}.txt"

    def read_data(self, index):
        return read_picture(self.folder('siftflow_dir') / f'Images/{FOLDER}/{index}.jpg', (114.578, 115.294, 108.353))

    def labels(self, kind, index):
        labels = read_mat(self.folder('siftflow_dir') / f'{kind}/{FOLDER}/{index}.mat', 'S').astype(int)
        return np.where(labels <= 0, 255, labels - 1)[np.newaxis]   # 0 and -1, without a class, do not count

    def read_sem(self, index):
        return self.labels('SemanticLabels', index)

    def read_geo(self, index):
        return self.labels('GeoLabels', index)

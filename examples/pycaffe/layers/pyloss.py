"""A loss in Python, under the name that nets give BVLC's."""
import numpy as np
import shoal.caffe as caffe


class EuclideanLossLayer(caffe.Layer):
    """Half the sum of the squares of the differences of two bottoms, over the batch, as EuclideanLoss."""

    def setup(self, bottom, top):
        if len(bottom) != 2:
            raise ValueError(f'this loss has two bottoms, and the net gives it {len(bottom)}')

    def reshape(self, bottom, top):
        if bottom[0].count != bottom[1].count:
            raise ValueError(f'the bottoms have the shapes {tuple(bottom[0].shape)} and {tuple(bottom[1].shape)}, which differ in their sizes')
        top[0].reshape(1)

    def forward(self, bottom, top):
        self.differences = (bottom[0].data - bottom[1].data.reshape(bottom[0].shape)).copy()
        top[0].data[...] = np.sum(self.differences ** 2) / bottom[0].shape[0] / 2

    def backward(self, top, propagate_down, bottom):
        for number, sign in ((0, 1), (1, -1)):
            if propagate_down[number]:
                bottom[number].diff[...] = (sign / bottom[number].shape[0] * self.differences).reshape(bottom[number].shape)

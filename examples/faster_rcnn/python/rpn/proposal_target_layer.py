"""Targets of the second stage: which proposals it is to look at, what is in them, and how they are to be moved."""
import numpy as np
import shoal.caffe as caffe

from .boxes import columns, moves, options, overlaps, some


class ProposalTargetLayer(caffe.Layer):
    """bottoms: rois (N, 5); gt_boxes (G, 5), with a class.
    tops: rois (R, 5); labels (R, 1, 1, 1), 0 where no object is; targets, inside and outside weights (R, 4 * classes). With num_classes: 2
    boxes of all classes are moved alike, as in R-FCN: by the second four."""

    def setup(self, bottom, top):
        self.options = options(self.param_str, num_classes=21, batch=128, positives=0.25, positive=0.5, negative_low=0.0,
                               negative_high=0.5, means=(0, 0, 0, 0), stds=(0.1, 0.1, 0.2, 0.2), seed=1)
        self.random = np.random.default_rng(self.options['seed'])

    def reshape(self, bottom, top):
        self.shape(top, 1)

    def shape(self, top, rois):
        for blob, width in zip(top, ((5,), (1, 1, 1), *[(4 * self.options['num_classes'],)] * 3)):
            blob.reshape(rois, *width)

    def forward(self, bottom, top):
        gt = bottom[1].data
        rois = np.vstack([bottom[0].data, np.hstack([np.zeros((len(gt), 1), np.float32), gt[:, :4]])])
        covers = overlaps(rois[:, 1:], gt[:, :4])
        best, of = covers.max(1), covers.argmax(1)
        batch = self.options['batch']
        positive = some(self.random, np.flatnonzero(best >= self.options['positive']), int(batch * self.options['positives']))
        negative = np.flatnonzero((best < self.options['negative_high']) & (best >= self.options['negative_low']))
        chosen = np.concatenate([positive, some(self.random, negative, batch - len(positive))]).astype(int)
        if not len(chosen):
            chosen = best.argmax(keepdims=True)
        labels = gt[of[chosen], 4].astype(int)
        labels[len(positive):] = 0
        targets, weights = np.zeros((2, len(chosen), 4 * self.options['num_classes']))
        by = (moves(rois[chosen, 1:], gt[of[chosen], :4]) - self.options['means']) / self.options['stds']
        for row in np.flatnonzero(labels):
            at = columns(labels[row], self.options['num_classes'])
            targets[row, at], weights[row, at] = by[row], 1
        self.shape(top, len(chosen))
        for blob, values in zip(top, (rois[chosen], labels, targets, weights, weights)):
            blob.data[...] = np.reshape(values, blob.shape)

    def backward(self, top, propagate_down, bottom):
        pass

"""Targets of the first stage: which anchors are to be taken for objects, and how they are to be moved."""
import numpy as np
import shoal.caffe as caffe

from .boxes import all_anchors, base_anchors, moves, options, overlaps, some


class AnchorTargetLayer(caffe.Layer):
    """bottoms: rpn_cls_score (1, 2A, H, W), of which the size counts; gt_boxes (G, 5), with a class; im_info (1, 3): height, width
    and scale; data.
    tops: labels (1, 1, A * H, W), 1, 0, or -1 where an anchor does not count; targets, inside weights and outside weights
    (1, 4A, H, W)."""

    def setup(self, bottom, top):
        self.options = options(self.param_str, feat_stride=16, base_size=16, scales=(8, 16, 32), ratios=(0.5, 1, 2),
                               allowed_border=0, positive=0.7, negative=0.3, batch=256, positives=0.5, seed=1)
        self.base = base_anchors(*(self.options[name] for name in ('base_size', 'ratios', 'scales')))
        self.random = np.random.default_rng(self.options['seed'])

    def reshape(self, bottom, top):
        height, width = bottom[0].shape[2:]
        top[0].reshape(1, 1, len(self.base) * height, width)
        for blob in top[1:]:
            blob.reshape(1, 4 * len(self.base), height, width)

    def labels(self, covers):
        """1 for anchors that cover an object best, or well; 0 for those that cover none; a part of each."""
        labels = np.full(len(covers), -1.0)
        best = covers.max(1)
        labels[best < self.options['negative']] = 0
        labels[((covers == covers.max(0)) & (covers > 0)).any(1)] = 1
        labels[best >= self.options['positive']] = 1
        for label, most in ((1, int(self.options['batch'] * self.options['positives'])), (0, self.options['batch'])):
            most -= int((labels == 1).sum()) if label == 0 else 0
            all_ = np.flatnonzero(labels == label)
            labels[np.setdiff1d(all_, some(self.random, all_, most))] = -1
        return labels

    def forward(self, bottom, top):
        height, width = bottom[0].shape[2:]
        gt, (rows, columns) = bottom[1].data, bottom[2].data[0, :2]
        anchors = all_anchors(self.base, height, width, self.options['feat_stride'])
        border = self.options['allowed_border']
        inside = np.flatnonzero((anchors[:, :2] >= -border).all(1) & (anchors[:, 2] < columns + border)
                                & (anchors[:, 3] < rows + border))
        labels, numbers = np.full(len(anchors), -1.0), np.zeros((3, len(anchors), 4))
        if len(inside) and len(gt):
            covers = overlaps(anchors[inside], gt[:, :4])
            labels[inside] = self.labels(covers)
            numbers[0, inside] = moves(anchors[inside], gt[covers.argmax(1), :4])
        numbers[1, labels == 1] = 1
        numbers[2, labels >= 0] = 1 / max(1, (labels >= 0).sum())

        def as_map(values, of_each):
            return values.reshape(height, width, len(self.base) * of_each).transpose(2, 0, 1)
        top[0].data[...] = as_map(labels, 1).reshape(top[0].shape)
        for blob, values in zip(top[1:], numbers):
            blob.data[0] = as_map(values, 4)

    def backward(self, top, propagate_down, bottom):
        pass

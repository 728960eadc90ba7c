"""What the first stage proposes: boxes where its scores are high."""
import numpy as np
import shoal.caffe as caffe

from .boxes import all_anchors, base_anchors, clipped, moved, options, sizes, suppressed


class ProposalLayer(caffe.Layer):
    """bottoms: probabilities (1, 2A, H, W), those of objects behind the others; moves (1, 4A, H, W); im_info (1, 3).
    tops: rois (N, 5), the image's number, 0, before each box; scores (N, 1), if asked for."""

    def setup(self, bottom, top):
        train = self.phase == caffe.TRAIN
        self.options = options(self.param_str, feat_stride=16, base_size=16, scales=(8, 16, 32), ratios=(0.5, 1, 2), min_size=16,
                               pre_nms_topN=12000 if train else 6000, post_nms_topN=2000 if train else 300, nms_thresh=0.7)
        self.base = base_anchors(*(self.options[name] for name in ('base_size', 'ratios', 'scales')))

    def reshape(self, bottom, top):
        for blob, width in zip(top, (5, 1)):
            blob.reshape(1, width)

    def forward(self, bottom, top):
        if bottom[0].num != 1:
            raise ValueError(f'a ProposalLayer takes one image at a time, and the batch has {bottom[0].num}')
        height, width = bottom[0].shape[2:]
        rows, columns, scale = bottom[2].data[0]
        scores = bottom[0].data[0, len(self.base):].transpose(1, 2, 0).ravel()
        by = bottom[1].data[0].transpose(1, 2, 0).reshape(-1, 4)
        boxes = clipped(moved(all_anchors(self.base, height, width, self.options['feat_stride']), by), rows, columns)
        large = np.flatnonzero(np.minimum(*sizes(boxes)[:2]) >= self.options['min_size'] * scale)
        best = large[np.argsort(-scores[large], kind='stable')[:self.options['pre_nms_topN']]]
        kept = best[suppressed(boxes[best], scores[best], self.options['nms_thresh'])[:self.options['post_nms_topN']]]
        rois = np.hstack([np.zeros((len(kept), 1)), boxes[kept]])
        if not len(kept):   # layers behind take one box at least
            rois, kept = np.array([[0, 0, 0, columns - 1, rows - 1]]), np.zeros(1, int)
        top[0].reshape(*rois.shape)
        top[0].data[...] = rois
        if len(top) > 1:
            top[1].reshape(len(rois), 1)
            top[1].data[:, 0] = scores[kept]

    def backward(self, top, propagate_down, bottom):
        pass

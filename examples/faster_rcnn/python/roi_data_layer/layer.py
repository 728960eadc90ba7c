"""Images and their boxes, one image a pass."""
import numpy as np
import shoal.caffe as caffe
from rpn.boxes import columns, moves, options, overlaps, some, suppressed


class RoIDataLayer(caffe.Layer):
    """With three tops, for nets that propose boxes themselves: data (1, C, H, W), im_info (1, 3), gt_boxes (G, 5). With more, or
    without `rpn`, for Fast R-CNN: data, rois (R, 5), labels (R, 1, 1, 1), and bbox_targets, inside and outside weights
    (R, 4 * classes), of two classes if all are moved alike (`agnostic`).

    Until it reads, images have the option `shape`. set_roidb() gives it what it reads, a list of dicts: image, an array (C, H, W) or the path of a picture; boxes (G, 4);
    classes (G); scale, 1 if not given; of Fast R-CNN proposals (P, 4) too."""

    cfg = {'rpn': True, 'agnostic': False}   # what py-faster-rcnn's nets leave to a file beside them: RoIDataLayer.cfg['rpn'] = False
    means = np.array([102.9801, 115.9465, 122.7717], np.float32)[:, np.newaxis, np.newaxis]   # of pictures in files

    def setup(self, bottom, top):
        self.options = options(self.param_str, num_classes=21, shape=(3, 640, 1024), batch=128, positives=0.25, positive=0.5, negative_low=0.1,
                               negative_high=0.5, seed=1, **self.cfg)
        self.proposes = len(top) <= 3 and self.options['rpn']
        self.classes = 2 if self.options['agnostic'] else self.options['num_classes']
        self.random = np.random.default_rng(self.options['seed'])
        self.roidb, self.left = [], []
        boxes = [(1, 3), (1, 5)] if self.proposes else [(1, 5), (1, 1, 1, 1), *[(1, 4 * self.classes)] * 3]
        for blob, shape in zip(top, [(1, *self.options['shape']), *boxes]):
            blob.reshape(*shape)

    def reshape(self, bottom, top):
        pass

    def set_roidb(self, roidb):
        self.roidb, self.left = list(roidb), []

    def next_entry(self):
        if not self.roidb:
            raise ValueError('this layer has nothing to read: net.layer_dict[NAME].set_roidb(entries)')
        if not self.left:
            self.left = list(self.random.permutation(len(self.roidb)))
        return self.roidb[self.left.pop()]

    def image_of(self, entry):
        if not isinstance(entry['image'], str):
            return np.asarray(entry['image'], np.float32)
        pixels = caffe.io.load_image(entry['image'])
        scale = entry.get('scale', 1)
        pixels = caffe.io.resize_image(pixels, np.round(np.array(pixels.shape[:2]) * scale).astype(int))
        return (pixels[:, :, ::-1].transpose(2, 0, 1) * 255 - self.means).astype(np.float32)

    def forward(self, bottom, top):
        entry = self.next_entry()
        image, scale = self.image_of(entry), entry.get('scale', 1)
        gt = np.hstack([np.asarray(entry['boxes']) * scale, np.asarray(entry['classes'])[:, np.newaxis]])
        made = [image[np.newaxis]]
        if self.proposes:
            made += [np.array([[*image.shape[1:], scale]]), gt]
        else:
            made += self.rois_of(np.vstack([np.asarray(entry['proposals']) * scale, gt[:, :4]]), gt)
        for blob, values in zip(top, made):
            blob.reshape(*values.shape)
            blob.data[...] = values

    def rois_of(self, boxes, gt):
        """Boxes that hold objects and boxes that hold none, with their targets."""
        covers = overlaps(boxes, gt)
        best, of = covers.max(1), covers.argmax(1)
        wanted = self.options
        positive = some(self.random, np.flatnonzero(best >= wanted['positive']), int(wanted['batch'] * wanted['positives']))
        negative = np.flatnonzero((best < wanted['negative_high']) & (best >= wanted['negative_low']))
        chosen = np.concatenate([positive, some(self.random, negative, wanted['batch'] - len(positive))]).astype(int)
        labels = gt[of[chosen], 4].astype(int)
        labels[len(positive):] = 0
        targets, weights = np.zeros((2, len(chosen), 4 * self.classes))
        by = moves(boxes[chosen], gt[of[chosen]])
        for row in np.flatnonzero(labels):
            at = columns(labels[row], self.classes)
            targets[row, at], weights[row, at] = by[row], 1
        return [np.hstack([np.zeros((len(chosen), 1)), boxes[chosen]]), labels.reshape(-1, 1, 1, 1), targets, weights, weights]

    def backward(self, top, propagate_down, bottom):
        pass


class OHEMDataLayer(caffe.Layer):
    """Takes of the boxes of a batch those that the net finds hardest, for another pass of it.

    bottoms: class probabilities (R, classes), moves (R, 4 * classes), rois (R, 5), labels (R) and, if boxes are learned, targets and
    inside and outside weights (R, 4 * classes). tops: of the hard ones rois, labels, targets and weights."""

    def setup(self, bottom, top):
        self.options = options(self.param_str, num_classes=21, batch=128, nms_thresh=0.7)
        self.shape(top, 1)

    def shape(self, top, rois):
        for blob, width in zip(top, ((5,), (), *[(4 * self.options['num_classes'],)] * 3)):
            blob.reshape(rois, *width)

    def reshape(self, bottom, top):
        pass

    def losses(self, bottom):
        """The loss of each box: of its class and, for objects, of its moves."""
        labels = bottom[3].data.reshape(-1).astype(int)
        rows = np.arange(len(labels))
        losses = -np.log(np.maximum(bottom[0].data.reshape(len(labels), -1)[rows, labels], np.finfo(float).eps))
        if len(bottom) > 4:
            moved, target, inside, outside = (bottom[i].data.reshape(len(labels), -1) for i in (1, 4, 5, 6))
            off = np.abs(inside * (moved - target))
            losses += np.where(labels > 0, (outside * np.where(off < 1, off ** 2 / 2, off - 0.5)).sum(1), 0)
        return losses

    def forward(self, bottom, top):
        losses, rois = self.losses(bottom), bottom[2].data.reshape(-1, 5)
        hard = []
        for image in np.unique(rois[:, 0]):
            own = np.flatnonzero(rois[:, 0] == image)
            hard.append(own[suppressed(rois[own, 1:], losses[own], self.options['nms_thresh'])])
        hard = np.concatenate(hard)
        hard = hard[np.argsort(-losses[hard], kind='stable')[:self.options['batch']]]
        made = [rois[hard], bottom[3].data.reshape(-1)[hard], *(bottom[i].data.reshape(len(rois), -1)[hard] for i in range(4, len(bottom)))]
        self.shape(top, len(hard))
        for blob, values in zip(top, made):
            blob.data[...] = values

    def backward(self, top, propagate_down, bottom):
        pass

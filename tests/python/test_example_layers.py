"""The layers in Python of examples/: those of py-faster-rcnn's nets, of FCN's, and BVLC's loss."""
import struct
import sys
import types
import zlib
from unittest import mock

from support import ROOT, Case, caffe, close, np, unittest

for folder in ('faster_rcnn/python', 'fcn/python', 'pycaffe/layers'):
    sys.path.insert(0, str(ROOT / 'examples' / folder))
from rpn import boxes  # noqa: E402
import segmentation  # noqa: E402


def layer(name, module, class_, bottoms='', tops='', param_str=''):
    words = ''.join(f' {kind}: "{blob}"' for kind, blobs in (('bottom', bottoms), ('top', tops)) for blob in blobs.split())
    return f'layer {{ name: "{name}" type: "Python"{words} python_param {{ module: "{module}" layer: "{class_}" param_str: "{param_str}" }} }}\n'


def inputs(**shapes):
    return ''.join(f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {" ".join(f"dim: {d}" for d in shape)} }} }} }}\n'
                   for name, shape in shapes.items())


def write_png(path, pixels, palette=None):
    """Writes H x W x 3 bytes, or H x W numbers of colours of a palette."""
    def chunk(kind, body):
        return struct.pack('>I', len(body)) + kind + body + struct.pack('>I', zlib.crc32(kind + body))
    pixels = np.asarray(pixels, np.uint8)
    rows = b''.join(b'\0' + row.tobytes() for row in pixels)
    head = struct.pack('>IIBBBBB', pixels.shape[1], pixels.shape[0], 8, 2 if palette is None else 3, 0, 0, 0)
    body = chunk(b'IHDR', head) + (chunk(b'PLTE', np.asarray(palette, np.uint8).tobytes()) if palette is not None else b'')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b'\x89PNG\r\n\x1a\n' + body + chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b''))


class Options(Case):
    def test_all_ways_in_which_public_nets_write_them(self):
        known = {'feat_stride': 1, 'scales': (8,), 'ratios': (1,)}
        for text, wanted in (('', {}), ("'feat_stride': 16", {'feat_stride': 16}), ('feat_stride: 16', {'feat_stride': 16}),
                             ("'feat_stride': 16 \n'scales': !!python/tuple [4, 8, 16, 32]", {'feat_stride': 16, 'scales': [4, 8, 16, 32]}),
                             ("{'feat_stride': 16, 'ratios': [0.333, 1], 'scales': [2, 3]}",
                              {'feat_stride': 16, 'ratios': [0.333, 1], 'scales': [2, 3]}),
                             ("{'feat_stride': 16,\n 'scales': [2, 3],\n}", {'feat_stride': 16, 'scales': [2, 3]})):
            self.assertEqual(boxes.options(text, **known), {**known, **wanted}, text)
        with self.assertRaisesRegex(ValueError, 'stride; this layer knows feat_stride'):
            boxes.options("'stride': 16", **known)
        for text in ('feat_stride: 4,8', '4, 8'):
            with self.assertRaisesRegex(ValueError, f"cannot be read as lines of name: value; it is '{text}'"):
                boxes.options(text, **known)


class Rcnn(Case):
    def test_boxes_of_all_classes_are_moved_alike(self):
        net = self.net(inputs(rois=(3, 5), gt=(2, 5)) + layer('target', 'rpn.proposal_target_layer', 'ProposalTargetLayer', 'rois gt',
                                                              'boxes labels targets inside outside', "'num_classes': 2"))
        net.blobs['rois'].data[...] = [[0, 0, 0, 31, 31], [0, 40, 40, 60, 60], [0, 100, 0, 120, 10]]
        net.blobs['gt'].data[...] = [[0, 0, 33, 31, 15], [40, 42, 60, 60, 3]]
        net.forward()
        labels, targets, inside = (net.blobs[name].data for name in ('labels', 'targets', 'inside'))
        self.assertEqual(labels.shape[1:], (1, 1, 1))   # as R-FCN's losses of each box want them
        labels = labels.ravel()
        self.assertEqual(sorted(labels[labels > 0]), [3, 3, 15, 15])
        self.assertEqual(targets.shape[1], 8)
        self.assertTrue((inside[labels > 0] == [0] * 4 + [1] * 4).all() and (inside[labels == 0] == 0).all())
        row = int(np.flatnonzero((labels == 15) & (net.blobs['boxes'].data[:, 3] == 31))[0])
        close(targets[row, 4:], [(17 - 16) / 32 / 0.1, 0, np.log(34 / 32) / 0.2, 0], 1e-4, 1e-5)

    def test_what_the_nets_do_not_say_is_in_cfg(self):
        from roi_data_layer.layer import RoIDataLayer
        picture = {'image': np.zeros((3, 32, 32)), 'boxes': [[0, 0, 15, 15]], 'classes': [2], 'proposals': [[0, 0, 15, 14], [0, 8, 15, 23]]}

        def shapes(tops, **cfg):
            with mock.patch.dict(RoIDataLayer.cfg, cfg):
                net = self.net(layer('data', 'roi_data_layer.layer', 'RoIDataLayer', tops=tops, param_str="'num_classes': 3"))
            before = [tuple(net.blobs[top].shape[1:]) for top in tops.split()]
            net.layer_dict['data'].set_roidb([picture])
            net.forward()
            self.assertEqual([tuple(net.blobs[top].shape[1:]) for top in tops.split()][1:], before[1:])
            return before[1:]
        self.assertEqual(shapes('data info gt'), [(3,), (5,)])
        self.assertEqual(shapes('data rois labels', rpn=False), [(5,), (1, 1, 1)])
        self.assertEqual(shapes('data rois labels targets inside outside'), [(5,), (1, 1, 1), (12,), (12,), (12,)])
        self.assertEqual(shapes('data rois labels targets inside outside', agnostic=True), [(5,), (1, 1, 1), (8,), (8,), (8,)])

    def test_the_hardest_boxes_are_taken(self):
        net = self.net(inputs(prob=(4, 3), moved=(4, 12), rois=(4, 5), labels=(4,), targets=(4, 12), inside=(4, 12), outside=(4, 12))
                       + layer('hard', 'roi_data_layer.layer', 'OHEMDataLayer', 'prob moved rois labels targets inside outside',
                               'rois_h labels_h targets_h inside_h outside_h', "{'num_classes': 3, 'batch': 2}"))
        net.blobs['prob'].data[...] = [[0.9, 0.05, 0.05], [0.1, 0.8, 0.1], [0.5, 0.3, 0.2], [0.02, 0.08, 0.9]]
        net.blobs['labels'].data[...] = [0, 1, 1, 2]
        net.blobs['rois'].data[...] = [[0, 0, 0, 9, 9], [0, 20, 20, 29, 29], [0, 40, 40, 49, 49], [0, 41, 40, 49, 49]]
        net.blobs['inside'].data[3, 8:] = net.blobs['outside'].data[3, 8:] = 1
        net.blobs['targets'].data[3, 8:] = [0.5, 3, 0, 0]
        net.forward()
        # Losses: 0.105, 0.223, 1.204, and 0.105 + 0.125 + 2.5, of which the third overlaps the last by 0.9.
        np.testing.assert_array_equal(net.blobs['labels_h'].data, [2, 1])
        np.testing.assert_array_equal(net.blobs['rois_h'].data, net.blobs['rois'].data[[3, 1]])
        close(net.blobs['targets_h'].data[0, 8:], [0.5, 3, 0, 0])

    def test_loss_of_bvlc_s_example(self):
        text = inputs(a=(4, 3), b=(4, 3)) + layer('loss', 'pyloss', 'EuclideanLossLayer', 'a b', 'loss').replace('" python_param', '" loss_weight: 1 python_param')
        twin = inputs(a=(4, 3), b=(4, 3)) + 'layer { name: "loss" type: "EuclideanLoss" bottom: "a" bottom: "b" top: "loss" }'
        random = np.random.default_rng(1)
        a, b = random.normal(size=(2, 4, 3))
        seen = []
        for one in (text, twin):
            net = self.net('force_backward: true ' + one)
            loss = float(net.forward(a=a, b=b)['loss'].ravel()[0])
            net.backward()
            seen.append((loss, net.blobs['a'].diff.copy()))
        close(seen[0][0], seen[1][0])
        close(seen[0][1], seen[1][1])


class Fcn(Case):
    def setUp(self):
        super().setUp()
        random = np.random.default_rng(1)
        self.picture = random.integers(0, 256, (6, 8, 3))
        self.labels = random.integers(0, 21, (6, 8))
        self.labels[0] = 255

    def matlab(self, **arrays):
        """Puts a SciPy in the place of the real one, which reads these arrays by the end of their path."""
        def loadmat(path):
            return next(content for end, content in arrays.items() if path.endswith(end.replace('__', '/') + '.mat'))
        io = types.SimpleNamespace(loadmat=loadmat)
        return mock.patch.dict(sys.modules, {'scipy': types.SimpleNamespace(io=io), 'scipy.io': io})

    def source(self, module, class_, blobs, **options):
        text = str(options).replace('"', "'")
        return self.net(layer('data', module, class_, tops=blobs, param_str=text))

    def test_voc(self):
        voc = self.folder / 'VOC2011'
        (voc / 'ImageSets/Segmentation').mkdir(parents=True)
        (voc / 'ImageSets/Segmentation/seg11valid.txt').write_text('2007_1\n2007_2\n')
        for name, turned in (('2007_1', 1), ('2007_2', -1)):
            write_png(voc / f'JPEGImages/{name}.jpg', self.picture[::turned])
            write_png(voc / f'SegmentationClass/{name}.png', self.labels[::turned], segmentation.voc_palette())
        net = self.source('voc_layers', 'VOCSegDataLayer', 'data label', voc_dir=str(voc), split='seg11valid', seed=1337, mean=(104.0, 116.5, 122.0))
        self.assertEqual(tuple(net.blobs['data'].shape), (1, 3, 64, 64))
        for turned in (1, -1, 1):
            net.forward()
            np.testing.assert_array_equal(net.blobs['label'].data, self.labels[np.newaxis, np.newaxis, ::turned])
            close(net.blobs['data'].data[0], self.picture[::turned, :, ::-1].transpose(2, 0, 1) - np.array([104, 116.5, 122])[:, None, None], 1e-5, 1e-3)
        write_png(voc / 'SegmentationClass/2007_2.png', self.picture)
        with self.assertRaisesRegex(ValueError, "2007_2.png has colours"):
            net.forward()
        self.assertEqual(segmentation.voc_palette()[[0, 1, 2, 15, 255]].tolist(),
                         [[0, 0, 0], [128, 0, 0], [0, 128, 0], [192, 128, 128], [224, 224, 192]])

    def test_splits_for_training_are_drawn(self):
        (self.folder / 'train.txt').write_text('\n'.join('abcdefgh'))
        write_png(self.folder / 'x.png', self.picture)
        seen = []

        class Letters(segmentation.SegDataLayer):
            def split_file(self):
                return self.folder('dir') / f"{self.options['split']}.txt"

            def read_data(self, index):
                return np.full((3, 2, 2), seen.append(index) or 1)

            def read_label(self, index):
                return np.zeros((1, 2, 2))
        with mock.patch.dict(sys.modules, {'letters': types.SimpleNamespace(Letters=Letters)}):
            for options in ({'seed': 5}, {'seed': 5}, {'randomize': False}):
                net = self.source('letters', 'Letters', 'data label', dir=str(self.folder), split='train', **options)
                for _ in range(8):
                    net.forward()
            self.assertEqual(seen[:8], seen[8:16])
            self.assertNotEqual(seen[:8], list('abcdefgh'))
            self.assertEqual(seen[16:], list('abcdefgh'))
            with self.assertRaisesRegex(ValueError, 'the tops data, label; the net gives it 0 and 1'):
                self.source('letters', 'Letters', 'data', dir='x', split='train')

    def test_sbdd(self):
        (self.folder / 'train.txt').write_text('a\n')
        write_png(self.folder / 'img/a.jpg', self.picture)
        held = np.zeros((1,), [('Segmentation', object)])
        held[0]['Segmentation'] = [self.labels]
        with self.matlab(cls__a={'GTcls': held}):
            net = self.source('voc_layers', 'SBDDSegDataLayer', 'data label', sbdd_dir=str(self.folder), split='train', mean=(0, 0, 0))
            net.forward()
        np.testing.assert_array_equal(net.blobs['label'].data[0, 0], self.labels)

    def test_siftflow(self):
        import siftflow_layers
        (self.folder / 'test.txt').write_text('a\n')
        write_png(self.folder / f'Images/{siftflow_layers.FOLDER}/a.jpg', self.picture)
        semantic, geometric = self.labels % 34, self.labels % 5 - 1
        kinds = {f'SemanticLabels/{siftflow_layers.FOLDER}/a': {'S': semantic}, f'GeoLabels/{siftflow_layers.FOLDER}/a': {'S': geometric}}
        with self.matlab(**kinds):
            net = self.source('siftflow_layers', 'SIFTFlowSegDataLayer', 'data sem geo', siftflow_dir=str(self.folder), split='test')
            net.forward()
        for name, labels in (('sem', semantic), ('geo', geometric)):
            np.testing.assert_array_equal(net.blobs[name].data[0, 0], np.where(labels < 1, 255, labels - 1))

    def test_nyud(self):
        (self.folder / 'trainval.txt').write_text('5001\n')
        for kind in ('images', 'hha'):
            write_png(self.folder / f'data/{kind}/img_5001.png', self.picture)
        with self.matlab(img_5001={'segmentation': self.labels % 41}):
            net = self.source('nyud_layers', 'NYUDSegDataLayer', 'color hha label', tops=['color', 'hha', 'label'], nyud_dir=str(self.folder), split='trainval')
            net.forward()
        np.testing.assert_array_equal(net.blobs['label'].data[0, 0], np.where(self.labels % 41 == 0, 255, self.labels % 41 - 1))
        close(net.blobs['color'].data[0, 0], self.picture[:, :, 2] - 116.19, 1e-5, 1e-3)
        close(net.blobs['hha'].data[0, 0], self.picture[:, :, 0] - 132.431, 1e-5, 1e-3)

    def test_pascal_context(self):
        (self.folder / 'VOC2010/ImageSets/Main').mkdir(parents=True)
        (self.folder / 'VOC2010/ImageSets/Main/val.txt').write_text('a\n')
        write_png(self.folder / 'VOC2010/JPEGImages/a.jpg', self.picture)
        (self.folder / 'labels.txt').write_text('1: bag\n2: bed clothes\n3: table\n')
        (self.folder / '59_labels.txt').write_text('1: bedcloth\n2: diningtable\n')
        with self.matlab(trainval__a={'LabelMap': self.labels % 4}):
            net = self.source('pascalcontext_layers', 'PASCALContextSegDataLayer', 'data label', voc_dir=str(self.folder), context_dir=str(self.folder),
                              split='val')
            net.forward()
        np.testing.assert_array_equal(net.blobs['label'].data[0, 0], np.array([0, 0, 1, 2])[self.labels % 4])


if __name__ == '__main__':
    unittest.main()

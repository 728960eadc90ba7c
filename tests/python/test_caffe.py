"""What pycaffe has beside nets and solvers: messages, io, NetSpec, coord_map, draw, Classifier, Detector; and records, metrics."""
import os
import subprocess
import sys

from support import GOLDEN, Case, caffe, caffe_pb2, close, np, shoal, unittest, write_digits

from shoal.caffe import coord_map, draw
from shoal.caffe import layers as L
from shoal.caffe import params as P


class Messages(Case):
    def test_the_fields_are_caffes(self):
        layer = caffe_pb2.LayerParameter.DESCRIPTOR
        self.assertEqual(layer.full_name, 'caffe.LayerParameter')
        self.assertEqual((layer.fields_by_name['convolution_param'].number, caffe_pb2.TEST), (106, 1))
        self.assertEqual(caffe_pb2.PoolingParameter.PoolMethod.Value('AVE'), caffe_pb2.PoolingParameter.AVE)
        self.assertEqual(caffe_pb2.V1LayerParameter.LayerType.Name(4), 'CONVOLUTION')
        self.assertEqual(caffe_pb2._V1LAYERPARAMETER_LAYERTYPE.values_by_number[4].name, 'CONVOLUTION')
        self.assertEqual(caffe_pb2._POOLINGPARAMETER.name, 'PoolingParameter')
        self.assertEqual(caffe_pb2.Phase.Name(0), 'TRAIN')

    def test_every_field_of_the_schema_is_there(self):
        for line in (GOLDEN / 'schema.txt').read_text().splitlines():
            words = line.split()
            message = getattr(caffe_pb2, words[0].split('.')[0], None) if len(words) > 3 else None
            if message is None or '.' in words[0]:
                continue
            self.assertEqual(message.DESCRIPTOR.fields_by_name[words[2]].number, int(words[1]), line)

    def test_the_pool_is_its_own(self):
        from google.protobuf import descriptor_pool
        pool = descriptor_pool.Default()
        with self.assertRaises(KeyError):
            pool.FindMessageTypeByName('caffe.LayerParameter')

    def test_a_model_is_read_by_messages(self):
        net = self.net()
        net.save(str(self.folder / 'x.caffemodel'))
        message = caffe_pb2.NetParameter.FromString((self.folder / 'x.caffemodel').read_bytes())
        conv = next(layer for layer in message.layer if layer.name == 'conv')
        np.testing.assert_array_equal(caffe.io.blobproto_to_array(conv.blobs[0]), net.params['conv'][0].data)


class Io(Case):
    def test_blobs(self):
        array = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
        blob = caffe.io.array_to_blobproto(array, diff=-array)
        np.testing.assert_array_equal(caffe.io.blobproto_to_array(blob), array)
        np.testing.assert_array_equal(caffe.io.blobproto_to_array(blob, return_diff=True), -array)
        self.refused('diff has', caffe.io.array_to_blobproto, array, diff=array[0])
        old = caffe_pb2.BlobProto(num=1, channels=1, height=2, width=3, data=range(6))
        self.assertEqual(caffe.io.blobproto_to_array(old).shape, (1, 1, 2, 3))
        several = caffe.io.blobprotovector_str_to_arraylist(caffe.io.arraylist_to_blobprotovector_str([array, array[0]]))
        self.assertEqual([a.shape for a in several], [(1, 2, 3), (2, 3)])

    def test_datums(self):
        for type_ in (np.uint8, np.float32):
            array = np.arange(12).astype(type_).reshape(3, 2, 2)
            datum = caffe.io.array_to_datum(array, label=3)
            self.assertEqual((datum.label, bool(datum.data)), (3, type_ == np.uint8))
            np.testing.assert_array_equal(caffe.io.datum_to_array(datum), array)
        self.refused('three axes', caffe.io.array_to_datum, np.zeros((2, 2)))

    def picture(self, pixels, name='x.ppm'):
        kind = b'P6' if pixels.shape[2] == 3 else b'P5'
        path = self.folder / name
        path.write_bytes(kind + b'\n%d %d\n255\n' % pixels.shape[1::-1] + pixels.astype(np.uint8).tobytes())
        return path

    def test_pictures(self):
        pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 3))
        path = self.picture(pixels)
        close(caffe.io.load_image(path), pixels / 255)
        np.testing.assert_array_equal(shoal.read_image(path), pixels[:, :, ::-1])
        close(caffe.io.load_image(path, color=False)[:, :, 0], pixels / 255 @ [0.2125, 0.7154, 0.0721], 1e-4)
        grey = self.picture(pixels[:, :, :1], 'x.pgm')
        close(caffe.io.load_image(grey), np.repeat(pixels[:, :, :1], 3, 2) / 255)
        self.assertEqual(caffe.io.load_image(grey, color=False).shape, (4, 5, 1))
        encoded = caffe_pb2.Datum(encoded=True, data=path.read_bytes())
        np.testing.assert_array_equal(caffe.io.datum_to_array(encoded), pixels[:, :, ::-1].transpose(2, 0, 1))
        self.refused('missing', caffe.io.load_image, self.folder / 'missing.png')

    def test_resizing(self):
        ramp = np.arange(8, dtype=np.float32)[np.newaxis, :, np.newaxis].repeat(2, 0)
        close(caffe.io.resize_image(ramp, (4, 4))[0, :, 0], [0.5, 2.5, 4.5, 6.5])
        close(caffe.io.resize_image(ramp, (2, 16))[1, :, 0], np.clip(np.arange(16) / 2 - 0.25, 0, 7))
        np.testing.assert_array_equal(caffe.io.resize_image(ramp, (2, 8)), ramp)
        self.assertEqual(caffe.io.resize_image(ramp, (2, 4), interp_order=0).shape, (2, 4, 1))
        self.refused('interp_order is 3', caffe.io.resize_image, ramp, (2, 4), interp_order=3)

    def test_oversampling(self):
        image = np.arange(5 * 6).reshape(5, 6, 1)
        crops = caffe.io.oversample([image, image], (3, 4))
        self.assertEqual(crops.shape, (20, 3, 4, 1))
        np.testing.assert_array_equal(crops[1], image[:3, 2:])
        np.testing.assert_array_equal(crops[4], image[1:4, 1:5])
        np.testing.assert_array_equal(crops[5:10], crops[:5, :, ::-1])
        self.refused('do not lie in', caffe.io.oversample, [image], (9, 9))

    def test_a_transformer_makes_inputs_and_undoes_it(self):
        transformer = caffe.io.Transformer({'data': (1, 3, 4, 4)})
        transformer.set_transpose('data', (2, 0, 1))
        transformer.set_channel_swap('data', (2, 1, 0))
        transformer.set_raw_scale('data', 255)
        transformer.set_mean('data', np.array([1, 2, 3]))
        transformer.set_input_scale('data', 0.5)
        image = np.random.default_rng(0).random((4, 4, 3)).astype(np.float32)
        made = transformer.preprocess('data', image)
        close(made, (image.transpose(2, 0, 1)[::-1] * 255 - np.array([1, 2, 3])[:, None, None]) * 0.5, 1e-4, 1e-4)
        close(transformer.deprocess('data', made), image, 1e-4, 1e-5)
        self.assertEqual(transformer.preprocess('data', np.zeros((9, 7, 3))).shape, (3, 4, 4))
        transformer.set_mean('data', np.ones((3, 8, 8)))
        self.assertEqual(transformer.mean['data'].shape, (3, 4, 4))
        for call in (lambda: transformer.set_transpose('data', (0, 1)), lambda: transformer.set_channel_swap('data', (0, 1)),
                     lambda: transformer.set_mean('data', np.ones(2)), lambda: transformer.preprocess('x', image)):
            self.assertRaises(shoal.Error, call)


class Specs(Case):
    def spec(self):
        n = caffe.NetSpec()
        n.data, n.label = L.DummyData(shape=[{'dim': [4, 1, 9, 9]}, {'dim': [4]}], ntop=2)
        n.conv = L.Convolution(n.data, kernel_size=3, num_output=5, weight_filler={'type': 'xavier'},
                               param=[{'lr_mult': 1}, {'lr_mult': 2}])
        n.pool = L.Pooling(n.conv, kernel_size=2, stride=2, pool=P.Pooling.MAX)
        n.relu = L.ReLU(n.pool, in_place=True)
        n.up = L.Deconvolution(n.relu, convolution_param={'num_output': 5, 'kernel_size': 2, 'stride': 2})
        n['ip'] = L.InnerProduct(L.Dropout(n.up, dropout_ratio=0.25), num_output=3)
        n.loss = L.SoftmaxWithLoss(n.ip, n.label)
        n.silence = L.Silence(n.up, ntop=0)
        return n

    def test_a_spec_is_a_net(self):
        message = self.spec().to_proto()
        self.assertEqual([(layer.name, layer.type) for layer in message.layer],
                         [('data', 'DummyData'), ('conv', 'Convolution'), ('pool', 'Pooling'), ('relu', 'ReLU'),
                          ('up', 'Deconvolution'), ('Dropout1', 'Dropout'), ('ip', 'InnerProduct'), ('loss', 'SoftmaxWithLoss'),
                          ('silence', 'Silence')])
        conv, relu = message.layer[1], message.layer[3]
        self.assertEqual((list(conv.convolution_param.kernel_size), conv.param[1].lr_mult, list(conv.bottom)), ([3], 2, ['data']))
        self.assertEqual((list(relu.bottom), list(relu.top)), (['pool'], ['pool']))
        self.assertEqual(message.layer[5].dropout_param.dropout_ratio, 0.25)
        self.assertEqual(list(message.layer[6].bottom), ['Dropout1'])
        net = caffe.Net(message, caffe.TRAIN)
        self.assertEqual(net.forward()['loss'].shape, ())

    def test_layers_name_themselves(self):
        top = L.ReLU(L.InnerProduct(L.Input(shape={'dim': [1, 2]}), num_output=2))
        message = caffe.to_proto(top)
        self.assertEqual([layer.name for layer in message.layer], ['Input1', 'InnerProduct1', 'ReLU1'])
        self.assertEqual(top.to_proto(), message)

    def test_wrong_specs(self):
        self.assertRaises(TypeError, L.ReLU, 'data')
        self.refused("no field 'num_outputs'", lambda: caffe.to_proto(L.Convolution(num_outputs=3)))
        self.assertRaises(AttributeError, lambda: caffe.NetSpec().nothing)
        self.assertRaises(AttributeError, lambda: P.Nothing.MAX)

    def test_crops_bring_blobs_together(self):
        n = caffe.NetSpec()
        n.data = L.Input(shape={'dim': [2, 1, 100, 100]})
        n.conv = L.Convolution(n.data, num_output=10, kernel_size=3, stride=2, pad=1)
        n.up = L.Deconvolution(n.conv, convolution_param={'num_output': 10, 'kernel_size': 5, 'stride': 2, 'pad': 0})
        axis, scale, shift = coord_map.coord_map_from_to(n.up, n.data)
        self.assertEqual((axis, float(scale[0]), float(shift[0])), (1, 1, -2))
        crop = coord_map.crop(n.up, n.data)
        self.assertEqual(crop.fn.params['crop_param'], {'axis': 2, 'offset': [2]})
        again = coord_map.coord_map_from_to(crop, n.data)
        self.assertEqual(float(again[2][0]), 0)
        self.assertRaises(RuntimeError, coord_map.coord_map_from_to, n.data, L.Input())
        self.assertRaises(AssertionError, coord_map.crop, n.data, n.up)

    def test_drawing(self):
        text = draw.draw_net(self.spec().to_proto(), 'TB', 'raw').decode()
        self.assertIn('conv (Convolution) kernel size: 3 stride: 1 pad: 0', text)
        self.assertIn('"blob data" -> l1', text)
        draw.draw_net_to_file(self.spec().to_proto(), str(self.folder / 'net.dot'), phase=caffe.TEST)
        self.assertTrue((self.folder / 'net.dot').read_text().startswith('digraph'))


class Pictures(Case):
    MODEL = '''layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 4 dim: 3 dim: 6 dim: 6 } } }
    layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
    layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }'''

    def setUp(self):
        super().setUp()
        self.net(self.MODEL).save(str(self.folder / 'x.caffemodel'))
        self.arguments = self.file('net.prototxt', self.MODEL), str(self.folder / 'x.caffemodel')
        self.image = np.random.default_rng(0).random((8, 8, 3)).astype(np.float32)

    def test_a_classifier_takes_the_mean_of_crops(self):
        classifier = caffe.Classifier(*self.arguments, image_dims=(8, 8), raw_scale=2, channel_swap=(2, 1, 0), mean=np.array([1, 2, 3]))
        center = classifier.predict([self.image] * 3, oversample=False)
        self.assertEqual(center.shape, (3, 2))
        made = ((self.image[1:7, 1:7, ::-1] * 2) - [1, 2, 3]).transpose(2, 0, 1)
        classifier.blobs['data'].data[0] = made
        close(classifier.forward()['prob'][0], center[0], 1e-4)
        crops = caffe.io.oversample([self.image], (6, 6))
        made = np.array([classifier.transformer.preprocess('data', crop) for crop in crops])
        close(classifier.predict([self.image])[0], classifier.forward_all(data=made)['prob'].mean(0), 1e-4)

    def test_a_detector_takes_windows(self):
        path = self.folder / 'x.ppm'
        pixels = (self.image * 255).astype(np.uint8)
        path.write_bytes(b'P6\n8 8\n255\n' + pixels.tobytes())
        detector = caffe.Detector(*self.arguments)
        found = detector.detect_windows([(path, [(0, 0, 6, 6), (1, 2, 7, 8)])])
        self.assertEqual([entry['window'] for entry in found], [(0, 0, 6, 6), (1, 2, 7, 8)])
        detector.blobs['data'].data[0] = (pixels[1:7, 2:8] / 255).transpose(2, 0, 1)
        close(detector.forward()['prob'][0], found[1]['prediction'], 1e-4)
        padded = caffe.Detector(*self.arguments, context_pad=1, mean=np.array([1, 2, 3]))
        crop = padded.crop(caffe.io.load_image(path), np.array((0, 0, 4, 4)))
        self.assertEqual(crop.shape, (6, 6, 3))
        close(crop[0, 0], [1, 2, 3])   # outside of the picture


class Data(Case):
    def test_records(self):
        for backend in ('lmdb', 'leveldb', 'datumfile'):
            path = self.folder / backend
            images, labels = write_digits(path, backend)
            records = shoal.Records(path)
            self.assertEqual(len(records), 320)
            for (key, datum), image, label in zip(records, images, labels):
                self.assertEqual(datum.label, label)
                np.testing.assert_array_equal(caffe.io.datum_to_array(datum)[0], image)
            self.assertEqual(key, b'00000319')
            self.assertEqual((records[-1][0], shoal.Records(path, raw=True)[7][0]), (b'00000319', b'00000007'))
            self.assertRaises(IndexError, lambda: records[320])
        self.refused('missing', shoal.Records, self.folder / 'missing')
        self.refused('mode', shoal.RecordWriter, self.folder / 'x', 'lmdb', 'nonsense')

    def test_records_appear_together_or_not_at_all(self):
        with self.assertRaises(KeyError):
            with shoal.RecordWriter(self.folder / 'x', 'datumfile') as writer:
                writer.put('a', caffe_pb2.Datum(label=1))
                raise KeyError
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_metrics(self):
        lines = '{"kind":"run","name":"n"}\n{"kind":"clock","clock":0}\n{"kind":"clock","clock":1}\n{"kind":"clo'
        (self.folder / 'metrics.0.jsonl.1').write_text('{"kind":"run","name":"n"}\n')
        (self.folder / 'metrics.0.jsonl').write_text(lines)
        metrics = shoal.read_metrics(self.folder)
        self.assertEqual([clock['clock'] for clock in metrics['clock']], [0, 1])
        self.assertEqual(len(metrics['run']), 2)
        self.assertRaises(FileNotFoundError, shoal.read_metrics, self.folder / 'none')


class Package(Case):
    def test_the_name_caffe(self):
        code = """
import caffe, caffe.io, caffe.draw, shoal.caffe
from caffe import layers as L
from caffe.proto import caffe_pb2
from caffe.coord_map import crop
assert caffe is shoal.caffe and caffe.io is shoal.caffe.io and caffe_pb2 is shoal.caffe.proto.caffe_pb2
"""
        subprocess.run([sys.executable, '-c', code], check=True, timeout=120)

    def test_modes(self):
        caffe.set_mode_cpu()
        self.assertEqual(shoal.machine.gpu, -1)
        if shoal._library._shoal.gpu_count() == 0:
            self.refused('no GPU can be used', caffe.set_mode_gpu)
        self.assertIn('Convolution', caffe.layer_type_list())
        self.assertIn('OpenBLAS', shoal.describe())

    def test_the_log_can_be_held_back(self):
        code = 'import shoal.caffe as c; c.log("heard"); c.init_log(2); c.log("unheard")'
        env = {name: value for name, value in os.environ.items() if not name.startswith('GLOG_')}
        ran = subprocess.run([sys.executable, '-c', code], env=env, stderr=subprocess.PIPE, text=True, check=True, timeout=120)
        self.assertIn('heard', ran.stderr)
        self.assertNotIn('unheard', ran.stderr)


if __name__ == '__main__':
    unittest.main()

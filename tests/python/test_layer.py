"""Layers that are written in Python."""
import sys

from support import SMALL_SOLVER, Case, caffe, close, np, shoal, unittest


class Ten(caffe.Layer):
    """Multiplies by ten."""

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom, top):
        top[0].data[...] = 10 * bottom[0].data

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = 10 * top[0].diff


class Failing(caffe.Layer):
    def setup(self, bottom, top):
        if self.param_str == 'setup':
            raise KeyError('in setup')

    def reshape(self, bottom, top):
        top[0].reshape(1)

    def forward(self, bottom, top):
        raise ZeroDivisionError('in forward')


class Shift(caffe.Layer):
    """Adds a param that it learns."""

    def setup(self, bottom, top):
        self.blobs.add_blob(3)
        self.blobs[0].data[...] = eval(self.param_str)['start']

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom, top):
        top[0].data[...] = bottom[0].data + self.blobs[0].data

    def backward(self, top, propagate_down, bottom):
        self.blobs[0].diff[...] += top[0].diff.sum(0)
        if propagate_down[0]:
            bottom[0].diff[...] = top[0].diff


class Source(caffe.Layer):
    """Makes as many items as the pass's number says, deciding in forward, as py-faster-rcnn's data layer does."""
    lent = None

    def setup(self, bottom, top):
        self.passes = 0
        top[0].reshape(1, 3)

    def forward(self, bottom, top):
        self.passes += 1
        top[0].reshape(self.passes, 3)
        top[0].data[...] = self.passes
        Source.lent = top[0]


class Phase(caffe.Layer):
    def reshape(self, bottom, top):
        top[0].reshape()

    def forward(self, bottom, top):
        top[0].data[()] = self.phase


def python(name, class_, bottom='', top='', more=''):
    bottom = f'bottom: "{bottom}"' if bottom else ''
    return (f'layer {{ name: "{name}" type: "Python" {bottom} top: "{top or name}" {more} '
            f'python_param {{ module: "{__name__}" layer: "{class_}" param_str: "{{\'start\': 2}}" }} }}\n')


INPUT = 'name: "p" force_backward: true\n' \
        'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 4 dim: 3 } } }\n'


class PythonLayers(Case):
    def setUp(self):
        super().setUp()
        sys.modules.setdefault(__name__, sys.modules.get('__main__'))

    def test_a_chain_computes(self):
        net = self.net(INPUT + python('one', 'Ten', 'data') + python('two', 'Ten', 'one') + python('three', 'Ten', 'two'))
        net.blobs['data'].data[...] = 8
        net.forward()
        self.assertTrue((net.blobs['three'].data == 8000).all())
        net.blobs['three'].diff[...] = 7
        net.backward()
        self.assertTrue((net.blobs['data'].diff == 7000).all())
        net.blobs['data'].reshape(2, 5)
        net.forward()
        self.assertEqual({blob.shape for blob in net.blobs.values()}, {(2, 5)})
        self.assertIsInstance(net.layer_dict['one'], Ten)
        self.assertEqual(net.layer_dict['one'].type, 'Python')
        self.assertIn('Python', caffe.layer_type_list())

    def test_in_place_and_behind_others(self):
        net = self.net(INPUT + 'layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 '
                       'weight_filler { type: "constant" value: 1 } } }' + python('ten', 'Ten', 'ip', 'ip')
                       + 'layer { name: "relu" type: "ReLU" bottom: "ip" top: "relu" }')
        net.blobs['data'].data[...] = 1
        self.assertTrue((net.forward()['relu'] == 30).all())
        net.backward(relu=np.ones((4, 2)))
        close(net.params['ip'][1].diff, [40, 40])

    def test_exceptions_are_raised_as_they_are(self):
        with self.assertRaises(KeyError):
            self.net(INPUT + python('f', 'Failing', 'data').replace("{'start': 2}", 'setup'))
        net = self.net(INPUT + python('f', 'Failing', 'data'))
        with self.assertRaisesRegex(ZeroDivisionError, 'in forward'):
            net.forward()
        with self.assertRaises(ZeroDivisionError):   # in a solver's step too
            path = self.file('f.prototxt', INPUT + python('f', 'Failing', 'data'))
            caffe.SGDSolver(self.file('solver.prototxt', f'net: "{path}" ' + SMALL_SOLVER)).step(1)
        with self.assertRaises(AttributeError):
            self.net(INPUT + python('f', 'Nobody', 'data'))
        with self.assertRaises(ModuleNotFoundError):
            self.net(INPUT + python('f', 'Ten', 'data').replace(f'module: "{__name__}"', 'module: "no_such_module"'))
        net = self.net(INPUT + python('p', 'Phase', 'data'))
        net.forward()
        with self.assertRaisesRegex(NotImplementedError, 'Phase has no backward'):
            net.backward()

    def test_params_are_learned_saved_and_shared(self):
        text = INPUT + 'layer { name: "zero" type: "DummyData" top: "zero" dummy_data_param { shape { dim: 4 dim: 3 } } }' \
            + python('shift', 'Shift', 'data') \
            + 'layer { name: "loss" type: "EuclideanLoss" bottom: "shift" bottom: "zero" top: "loss" }'
        path = self.file('net.prototxt', text)
        solver = caffe.SGDSolver(self.file('solver.prototxt', f'net: "{path}" ' + SMALL_SOLVER.replace('momentum: 0.9', '')))
        param = solver.net.params['shift'][0]
        self.assertTrue((param.data == 2).all())
        solver.step(1)
        close(param.data, np.full(3, 2 - 0.1 * 2), 1e-6)   # the gradient is sum(2) / 4
        solver.net.save(str(self.folder / 'x.caffemodel'))
        net = caffe.Net(path, caffe.TEST, weights=str(self.folder / 'x.caffemodel'))
        close(net.layer_dict['shift'].blobs[0].data, 1.8)
        net.layer_dict['shift'].blobs[0].data[...] = 5
        net.blobs['data'].data[...] = 1
        net.forward()
        self.assertTrue((net.blobs['shift'].data == 6).all())
        kept = net.layer_dict['shift'].blobs
        del net
        import gc
        gc.collect()
        self.refused('the net of this layer is gone', kept.add_blob, 1)

    def test_a_layer_decides_on_shapes_in_each_pass(self):
        net = self.net(python('source', 'Source') + python('ten', 'Ten', 'source')
                       + 'layer { name: "ip" type: "InnerProduct" bottom: "ten" top: "ip" inner_product_param { num_output: 2 } }')
        for passes in (1, 2, 3):
            out = net.forward(blobs=['ten'])
            self.assertEqual(out['ip'].shape, (passes, 2))
            self.assertTrue((out['ten'] == 10 * passes).all())
        self.refused('lent to a Python layer', lambda: Source.lent.data)

    def test_the_phase_is_said(self):
        for phase in (caffe.TRAIN, caffe.TEST):
            self.assertEqual(self.net(python('phase', 'Phase'), phase).forward()['phase'], phase)


if __name__ == '__main__':
    unittest.main()

"""Nets from Python: blobs, passes, views, wrong calls."""
import gc
import threading
from collections import OrderedDict

from support import SMALL, Case, caffe, caffe_pb2, close, fill, np, shoal, unittest


WITHOUT_LOSS = SMALL[:SMALL.index('layer { name: "loss"')].replace('top: "label"', '').replace('shape { dim: 6 }', '')


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


class Passes(Case):
    def test_forward_and_backward_are_what_numpy_computes(self):
        net = self.net()
        data, labels = fill(net)
        weight, bias = (param.data.copy() for param in net.params['conv'])
        out = net.forward(blobs=['conv', 'ip'])
        padded = np.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1)))
        conv = np.stack([sum(np.tensordot(padded[:, :, y:y + 5, x:x + 4], weight[k, :, y, x], ([1], [0]))
                             for y in range(3) for x in range(3)) for k in range(3)], 1) + bias[:, None, None]
        conv = np.maximum(conv, 0)
        close(out['conv'], conv, 1e-4, 1e-5)
        ip = conv.reshape(6, -1) @ net.params['ip'][0].data.T + net.params['ip'][1].data
        close(out['ip'], ip, 1e-4, 1e-5)
        close(out['loss'], -np.log(softmax(ip)[np.arange(6), labels]).mean(), 1e-4)
        diffs = net.backward(diffs=['ip'])
        wanted = (softmax(ip) - np.eye(3)[labels]) / 6
        close(diffs['ip'], wanted, 1e-4, 1e-6)
        close(net.params['ip'][0].diff, wanted.T @ conv.reshape(6, -1), 1e-3, 1e-5)
        self.assertEqual(diffs['data'].shape, (6, 2, 5, 4))
        self.assertGreater(np.abs(diffs['data']).max(), 0)

    def test_a_part_of_a_pass_takes_what_the_blobs_hold(self):
        net = self.net()
        fill(net)
        net.forward()
        net.blobs['conv'].data[...] = 1
        out = net.forward(start='ip', end='ip')
        self.assertEqual(list(out), ['ip'])
        close(out['ip'], np.ones((6, 60)) @ net.params['ip'][0].data.T + net.params['ip'][1].data, 1e-4)
        net.blobs['ip'].diff[...] = 2
        back = net.backward(start='ip', end='ip')
        close(back['conv'].reshape(6, -1), np.full((6, 3), 2) @ net.params['ip'][0].data, 1e-4)

    def test_the_gradient_of_an_output_is_the_callers(self):
        net = self.net(WITHOUT_LOSS)
        net.blobs['data'].data[...] = np.random.default_rng(0).normal(size=(6, 2, 5, 4))
        net.forward()
        net.backward(ip=np.ones((6, 3)))
        once = net.params['ip'][1].diff.copy()
        close(once, [6, 6, 6])
        net.backward()
        close(net.params['ip'][1].diff, 2 * once)   # added to
        net.clear_param_diffs()
        self.assertFalse(net.params['ip'][1].diff.any())

    def test_the_loss_counts_with_its_weight(self):
        net = self.net(seed=1)
        fill(net)
        net.forward()
        net.backward()
        once = net.params['ip'][1].diff.copy()
        net = self.net(SMALL.replace('top: "loss" }', 'top: "loss" loss_weight: 3 }'), seed=1)
        fill(net)
        net.forward()
        self.assertEqual(net.blob_loss_weights['loss'], 3)
        close(net.blobs['loss'].diff, 3)
        net.backward()
        close(net.params['ip'][1].diff, once * 3)

    def test_every_blob_keeps_its_numbers(self):
        net = self.net(SMALL.replace('bottom: "conv" top: "conv"', 'bottom: "conv" top: "relu"')
                       .replace('bottom: "conv" top: "ip"', 'bottom: "relu" top: "ip"'))
        fill(net)
        net.forward()
        close(np.maximum(net.blobs['conv'].data, 0), net.blobs['relu'].data)
        self.assertLess(net.blobs['conv'].data.min(), 0)

    def test_arrays_of_any_length(self):
        net = self.net(WITHOUT_LOSS)
        data = np.random.default_rng(1).normal(size=(8, 2, 5, 4)).astype(np.float32)
        whole = net.forward_all(blobs=['conv'], data=data)
        self.assertEqual((whole['ip'].shape, whole['conv'].shape), ((8, 3), (8, 3, 5, 4)))
        net.blobs['data'].data[...] = data[2:]
        close(net.forward()['ip'][-2:], whole['ip'][-2:])
        outs, diffs = net.forward_backward_all(data=data, ip=np.ones((8, 3), np.float32))
        close(outs['ip'], whole['ip'])
        self.assertEqual(diffs['data'].shape, data.shape)

    def test_weights_are_saved_copied_and_shared(self):
        net, other = self.net(), self.net()
        for name in ('x.caffemodel', 'x.caffemodel.h5'):
            path = str(self.folder / name)
            (net.save_hdf5 if name.endswith('h5') else net.save)(path)
            other.params['conv'][0].data[...] = 0
            other.copy_from(path)
            np.testing.assert_array_equal(other.params['conv'][0].data, net.params['conv'][0].data)
        loaded = self.net(weights=str(self.folder / 'x.caffemodel'))
        legacy = caffe.Net(str(self.folder / 'net.prototxt'), str(self.folder / 'x.caffemodel'), caffe.TEST)
        for copy in (loaded, legacy):
            np.testing.assert_array_equal(copy.params['ip'][0].data, net.params['ip'][0].data)
        other.share_with(net)
        net.params['ip'][0].data[...] = 7
        self.assertTrue((other.params['ip'][0].data == 7).all())
        self.assertFalse((loaded.params['ip'][0].data == 7).any())

    def test_a_written_param_counts_in_the_next_pass(self):
        # Kernels keep packed copies of weights.
        net = self.net()
        fill(net)
        weight = net.params['conv'][0].data   # an array that stays
        first = net.forward(blobs=['conv'])['conv'].copy()
        for factor in (2, 3):
            weight *= factor
            net.params['conv'][1].data[...] *= factor
            second = net.forward(blobs=['conv'])['conv']
            close(second, first * factor, 1e-4)
            first = second.copy()

    def test_what_kernels_keep_in_their_own_order_does_not_show(self):
        # Convolutions of this size keep images and weights in blocks of channels.
        conv = 'layer { name: "%s" type: "Convolution" bottom: "%s" top: "%s" convolution_param { num_output: 32 kernel_size: 3 ' \
               'weight_filler { type: "msra" } } }'
        net = self.net('layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 4 dim: 16 dim: 30 dim: 30 } } }'
                       + conv % ('one', 'data', 'one') + conv % ('two', 'one', 'two'), caffe.TEST)
        data = np.random.default_rng(0).normal(size=(4, 16, 30, 30)).astype(np.float32)
        image, middle, weight, out = (net.blobs['data'].data, net.blobs['one'].data, net.params['one'][0].data, net.blobs['two'].data)
        image[...] = data
        net.forward()
        first = middle.copy(), out.copy()
        taps = weight[5]   # at one place, by hand
        close(middle[2, 5, 7, 9], (data[2, :, 7:10, 9:12] * taps).sum(), 1e-3, 1e-4)
        for what, factor in ((weight, 2), (image, 3)):
            what *= factor
            net.forward()
            close(middle, first[0] * factor, 1e-3, 1e-3)
            close(out, first[1] * factor, 1e-3, 1e-2)
            what /= factor
        middle[...] = 0   # counts in a pass that begins behind it
        net.forward(start='two')
        self.assertFalse(out.any())

    def test_hooks_see_each_layer(self):
        net = self.net()
        fill(net)
        calls = []
        net.before_forward(lambda layer: calls.append(('before', layer)))
        net.after_backward(lambda layer: calls.append(('after', layer)))
        net.forward(end='conv')
        self.assertEqual([call for call in calls if call[0] == 'before'], [('before', i) for i in range(len(calls))])
        net.forward()
        net.backward()
        self.assertEqual([layer for what, layer in calls if what == 'after'], list(range(len(net.layers)))[::-1])

        def fail(layer):
            raise KeyError('of a hook')
        net.after_forward(fail)
        with self.assertRaises(KeyError):
            net.forward()


class Names(Case):
    def test_the_net_says_what_is_in_it(self):
        net = self.net()
        self.assertEqual(net.name, 'small')
        self.assertEqual(net.inputs, ['data', 'label'])
        self.assertEqual(net.outputs, ['loss'])
        self.assertEqual(list(net.blobs), ['data', 'label', 'conv', 'ip', 'loss'])
        self.assertEqual(net.bottom_names, OrderedDict([('data', []), ('conv', ['data']), ('relu', ['conv']), ('ip', ['conv']),
                                                        ('loss', ['ip', 'label'])]))
        self.assertEqual(net.top_names['data'], ['data', 'label'])
        self.assertEqual([layer.type for layer in net.layers], ['Input', 'Convolution', 'ReLU', 'InnerProduct', 'SoftmaxWithLoss'])
        self.assertEqual(list(net.layer_dict), list(net._layer_names))
        self.assertEqual([p.shape for p in net.params['conv']], [(3, 2, 3, 3), (3,)])
        self.assertEqual(len(net.layer_dict['ip'].blobs), 2)
        blob = net.blobs['data']
        self.assertEqual((blob.num, blob.channels, blob.height, blob.width, blob.count), (6, 2, 5, 4, 240))
        self.assertEqual(net.blobs['label'].width, 1)

    def test_a_net_may_be_a_message(self):
        spec = caffe.NetSpec()
        spec.data = caffe.layers.Input(shape={'dim': [2, 3]})
        spec.ip = caffe.layers.InnerProduct(spec.data, num_output=4)
        net = shoal.Net(spec.to_proto(), caffe.TEST)
        self.assertEqual(net.forward()['ip'].shape, (2, 4))

    def test_level_and_stages_choose_layers(self):
        text = SMALL + 'layer { name: "a" type: "Silence" bottom: "ip" include { stage: "x" } }' \
                       'layer { name: "b" type: "Silence" bottom: "ip" include { min_level: 2 } }'
        self.assertNotIn('a', self.net(text).layer_dict)
        self.assertIn('a', self.net(text, stages=['x']).layer_dict)
        self.assertIn('b', self.net(text, level=2).layer_dict)

    def test_seeds_make_the_same_params(self):
        weights = [self.net(seed=seed).params['conv'][0].data for seed in (5, 5, 6)]
        np.testing.assert_array_equal(weights[0], weights[1])
        self.assertTrue((weights[0] != weights[2]).any())
        caffe.set_random_seed(5)
        self.addCleanup(caffe.set_random_seed, None)
        np.testing.assert_array_equal(self.net().params['conv'][0].data, weights[0])


class Views(Case):
    def test_arrays_outlive_the_net(self):
        net = self.net()
        fill(net)
        net.forward()
        arrays = [blob.data for blob in net.blobs.values()] + [p.diff for ps in net.params.values() for p in ps]
        blob = net.blobs['conv']
        total = float(blob.data.sum())
        del net
        gc.collect()
        self.assertTrue(all(np.isfinite(array).all() for array in arrays))
        self.assertEqual(float(blob.data.sum()), total)   # a blob keeps its net

    def test_an_array_shows_each_pass(self):
        net = self.net()
        fill(net)
        kept = net.blobs['conv'].data
        net.forward()
        first = kept.copy()
        self.assertIs(net.blobs['conv'].data, kept)
        fill(net, seed=1)
        net.forward()
        self.assertTrue((kept != first).any())
        np.testing.assert_array_equal(kept, net.blobs['conv'].data)

    def test_nothing_is_copied(self):
        net = self.net()
        array = net.params['ip'][0].data
        array[0, 0] = 42
        self.assertEqual(net.params['ip'][0].data[0, 0], 42)
        self.assertEqual((array.dtype, array.flags.c_contiguous, array.flags.owndata), (np.float32, True, False))

    def test_an_array_of_before_a_reshape_can_be_read_and_not_written(self):
        net = self.net()
        data, _ = fill(net)
        old = net.blobs['data'].data
        inner = net.blobs['conv'].data
        net.blobs['data'].reshape(50, 2, 7, 9)
        net.blobs['label'].reshape(50)
        with self.assertRaises(ValueError):
            old[...] = 0
        np.testing.assert_array_equal(old, data)
        self.refused('ip', net.forward)   # 50 x 3 x 7 x 9 do not fit its weights
        net = self.net(SMALL[:SMALL.index('layer { name: "ip"')])
        inner = net.blobs['conv'].data
        net.blobs['data'].reshape(50, 2, 7, 9)
        self.assertEqual(net.forward()['conv'].shape, (50, 3, 7, 9))
        with self.assertRaises(ValueError):
            inner[...] = 0
        self.assertEqual(float(inner.sum()), 0)
        net.blobs['data'].reshape(1, 2, 4, 4)
        net.reshape()
        self.assertEqual(net.blobs['conv'].shape, (1, 3, 4, 4))

    def test_a_blob_that_was_reshaped_gets_its_layers_shape_again(self):
        net = self.net()
        fill(net)
        net.blobs['conv'].reshape(6, 3, 50, 40)
        self.refused('was reshaped', net.backward)
        net.forward()
        self.assertEqual(net.blobs['conv'].shape, (6, 3, 5, 4))
        net.backward()
        net.blobs['data'].reshape([1, 2, 5, 4])
        self.refused('before its backward pass', net.backward, start='ip')

    def test_params_keep_their_shape(self):
        self.refused('its layer decides', self.net().params['conv'][0].reshape, 1)


class Wrong(Case):
    def test_calls_raise_value_errors_in_words(self):
        net = self.net()
        with self.assertRaises(ValueError):
            net.forward(data=np.zeros((6, 2, 5, 4)))   # label is missing
        with self.assertRaises(RuntimeError):
            caffe.Net(str(self.folder / 'missing'), caffe.TEST)
        self.refused("are not the net's inputs", net.forward, x=np.zeros(3))
        self.refused('with the shape (5, 2, 5, 4)', net.forward, data=np.zeros((5, 2, 5, 4)), label=np.zeros(6))
        self.refused('broadcast', net.forward, data=np.zeros((6, 2, 5, 3)), label=np.zeros(6))
        self.refused("no layer 'x'", net.forward, start='x')
        self.refused("no blob 'x'", net.forward, blobs=['x'])
        self.refused('has no layers', net.forward, start='ip', end='conv')
        self.refused('counted from 0', net._forward, 0, 99)
        self.refused('counted from 0', net._backward, 99, 0)
        self.refused('phase is 7', caffe.Net, str(self.folder / 'net.prototxt'), 7)
        self.refused('phase is missing', caffe.Net, str(self.folder / 'net.prototxt'))
        self.refused("did you mean 'Convolution'", self.net, SMALL.replace('"Convolution"', '"Convolutoin"'))
        self.refused('threads is 0', shoal._library._shoal.Net, SMALL, True, 0, 0, [], -1, 0, 1)
        self.refused('no MemoryData layer', net.set_input_arrays, np.zeros((6, 2, 5, 4)), np.zeros(6))
        self.refused('negative', net.blobs['data'].reshape, -1, 2)
        error = self.refused('missing', net.copy_from, str(self.folder / 'missing.caffemodel'))
        self.assertEqual(error.code, 3)

    def test_a_label_out_of_range_ends_the_pass(self):
        net = self.net()
        fill(net)
        net.blobs['label'].data[2] = 17
        self.refused('17', net.forward)
        fill(net)
        net.forward()

    def test_one_thread_at_a_time(self):
        net = self.net()
        fill(net)
        errors = []

        def use(layer):
            def other():
                try:
                    net.forward()
                except shoal.Error as error:
                    errors.append(str(error))
            thread = threading.Thread(target=other)
            thread.start()
            thread.join(timeout=60)
        net.before_forward(use)
        net.forward(end='data')
        self.assertIn('within another one', errors[0])

    def test_two_nets_compute_side_by_side(self):
        nets = [self.net(), self.net()]
        nets[1].share_with(nets[0])
        for net in nets:
            fill(net)
        outs = {}

        def run(number):
            for _ in range(20):
                outs[number] = nets[number].forward()['loss'].copy()
        threads = [threading.Thread(target=run, args=(number,)) for number in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        np.testing.assert_array_equal(outs[0], outs[1])


class Memory(Case):
    def test_memory_data_reads_arrays(self):
        net = self.net('layer { name: "m" type: "MemoryData" top: "data" top: "label" '
                       'memory_data_param { batch_size: 2 channels: 1 height: 1 width: 3 } }')
        self.refused('set_data', net.forward)
        net.set_input_arrays(np.arange(12).reshape(4, 1, 1, 3), np.arange(4))
        self.assertEqual(net.forward()['data'].ravel().tolist(), list(range(6)))
        self.assertEqual(net.forward()['label'].ravel().tolist(), [2, 3])
        self.refused('multiple', net.set_input_arrays, np.zeros((3, 1, 1, 3)), np.zeros(3))
        self.refused('4 axes', net.set_input_arrays, np.zeros((3, 3)), np.zeros(3))
        self.assertEqual(net.blobs['data'].shape, (2, 1, 1, 3))
        self.refused('its layer decides', net.blobs['data'].reshape, 4, 1, 1, 3)

    def test_a_message_has_the_defaults_of_caffe(self):
        self.assertEqual(caffe_pb2.ConvolutionParameter().group, 1)


if __name__ == '__main__':
    unittest.main()

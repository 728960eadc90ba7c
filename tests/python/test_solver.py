"""Solvers from Python."""
import json
import os
import signal
import threading
import time

from support import GOLDEN, ROOT, SHARED, SMALL, SMALL_SOLVER, Case, caffe, caffe_pb2, close, fill, np, shoal, unittest, write_digits


class Solvers(Case):
    def solver(self, class_=caffe.SGDSolver, extra='', net=SMALL, **kwargs):
        path = self.file('net.prototxt', net)
        return class_(self.file('solver.prototxt', f'net: "{path}" {SMALL_SOLVER} {extra}'), **kwargs)

    def test_steps_are_the_rule(self):
        solver = self.solver(extra='test_iter: 1 test_interval: 1000 test_initialization: false')
        fill(solver.net)
        param, twin = solver.net.params['ip'][1], self.net()
        self.assertEqual(solver.iter, 0)
        history, weight = np.zeros(3), param.data.copy()
        for name, params in solver.net.params.items():
            for i, own in enumerate(params):
                twin.params[name][i].data[...] = own.data
        fill(twin)
        for _ in range(3):
            twin.clear_param_diffs()
            loss = twin.forward()['loss'].copy()
            twin.backward()
            history = 0.9 * history + 0.1 * twin.params['ip'][1].diff
            weight = weight - history
            solver.step(1)
            close(solver.loss, loss, 1e-5)
            close(param.data, weight, 1e-4)
            for name, params in solver.net.params.items():
                for i, own in enumerate(params):
                    twin.params[name][i].data[...] = own.data
        self.assertEqual((solver.iter, solver.param.max_iter), (3, 20))
        close(solver.lr, 0.1)
        self.assertEqual(solver.param.type, 'SGD')

    def test_arrays_that_stay_follow_the_training(self):
        solver = self.solver(extra='test_iter: 1 test_interval: 1000 test_initialization: false')
        fill(solver.net)
        weight = solver.net.params['conv'][0].data
        before, tested = weight.copy(), solver.test_nets[0].params['conv'][0].data
        solver.step(2)
        self.assertTrue((weight != before).any())
        np.testing.assert_array_equal(weight, tested)   # the test net has the same params
        weight[...] = 0
        solver.test_nets[0].forward()
        self.assertEqual(float(np.abs(solver.test_nets[0].blobs['conv'].data - 0.1).max()),
                         float(np.abs(solver.test_nets[0].params['conv'][1].data - 0.1).max()))
        solver.test_nets[0].backward()

    def test_types(self):
        for class_, name in ((caffe.AdamSolver, 'Adam'), (caffe.NesterovSolver, 'Nesterov'), (caffe.AdaGradSolver, 'AdaGrad'),
                             (caffe.RMSPropSolver, 'RMSProp'), (caffe.AdaDeltaSolver, 'AdaDelta')):
            extra = {'AdaGrad': '', 'RMSProp': '', 'AdaDelta': 'delta: 1e-6'}.get(name, '')
            text = SMALL_SOLVER.replace('momentum: 0.9', '') if name in ('AdaGrad', 'RMSProp') else SMALL_SOLVER
            path = self.file('net.prototxt', SMALL)
            solver = class_(self.file('solver.prototxt', f'net: "{path}" {text} {extra}'))
            self.assertEqual(solver.param.type, name)
            fill(solver.net)
            solver.step(1)
        solver = self.solver(caffe.get_solver, extra='type: "Adam"')
        self.assertEqual(solver.param.type, 'Adam')
        self.assertIsInstance(solver, caffe.SGDSolver)

    def test_snapshots_and_restoring(self):
        prefix = str(self.folder / 'snap')
        solver = self.solver(extra=f'snapshot_prefix: "{prefix}"')
        fill(solver.net)
        solver.step(2)
        solver.snapshot()
        solver.step(2)
        again = self.solver(extra=f'snapshot_prefix: "{prefix}"')
        again.restore(prefix + '_iter_2.solverstate')
        self.assertEqual(again.iter, 2)
        fill(again.net)
        again.step(2)
        np.testing.assert_array_equal(again.net.params['ip'][0].data, solver.net.params['ip'][0].data)
        again.solve()
        self.assertEqual(again.iter, 20)
        copied = self.solver()
        copied.net.copy_from(prefix + '_iter_2.caffemodel')
        self.refused('missing', copied.restore, str(self.folder / 'missing.solverstate'))

    def test_tests_are_means(self):
        solver = self.solver(extra='test_iter: 3 test_interval: 100 test_initialization: false')
        fill(solver.test_nets[0])
        loss = solver.test_nets[0].forward()['loss'].copy()
        scores = solver.test()
        self.assertEqual(scores[0][0], 'loss')
        close(scores[0][1], loss)
        self.refused('test(1)', solver.test, 1)

    def test_a_message_is_a_solver_too(self):
        message = caffe_pb2.SolverParameter(base_lr=0.1, lr_policy='fixed', max_iter=3, snapshot_after_train=False)
        message.net_param.MergeFrom(shoal.caffe.NetSpec().to_proto())
        self.refused('no layer', shoal.Solver, message)
        message.net = self.file('net.prototxt', SMALL)
        message.ClearField('net_param')
        solver = shoal.Solver(message)
        fill(solver.net)
        solver.solve()
        self.assertEqual(solver.iter, 3)
        self.assertGreater(solver.smoothed_loss, 0)

    def test_the_net_keeps_the_solver(self):
        net = self.solver().net
        fill(net)
        self.assertGreater(float(net.forward()['loss']), 0)

    def test_wrong_calls(self):
        solver = self.solver()
        self.refused('below 0', solver.step, -1)
        self.refused("solver's own work", solver.net.before_forward, print)
        self.refused('lr_policy', self.solver, extra='lr_policy: "nonsense"')
        fill(solver.net)
        solver.net.params['ip'][0].data[...] = np.nan
        self.refused('not finite', solver.step, 1)

    def test_control_c_ends_a_long_step(self):
        solver = self.solver()
        fill(solver.net)
        solver.step(1)
        done = threading.Event()

        def interrupt():
            while not done.wait(timeout=0.01):
                if solver._solver.iter > 10:
                    os.kill(os.getpid(), signal.SIGINT)
                    return
        thread = threading.Thread(target=interrupt)
        thread.start()
        begun = time.monotonic()
        try:
            with self.assertRaises(KeyboardInterrupt):
                solver.step(10**9)
        finally:
            done.set()
            thread.join(timeout=60)
        self.assertLess(time.monotonic() - begun, 60)
        reached = solver.iter
        solver.step(1)   # it can go on
        self.assertEqual(solver.iter, reached + 1)


class Golden(Case):
    def setUp(self):
        super().setUp()
        write_digits(self.folder / 'digits')

    def net_file(self):
        text = (ROOT / 'models/lenet/train_val.prototxt').read_text()
        for source in ('train', 'test'):
            text = text.replace(f'examples/mnist/mnist_{source}_lmdb', str(self.folder / 'digits'))
        return self.file('lenet.prototxt', text)

    @unittest.skipUnless((SHARED / 'golden').is_dir(), 'SHOAL_SHARED names no folder with golden numbers')
    def test_losses_are_those_of_bvlc_caffe(self):
        net = self.net_file()
        for name, case in json.loads((GOLDEN / 'lenet_losses.json').read_text()).items():
            if name not in ('sgd', 'adam'):
                continue
            text = f'net: "{net}" {case["solver"]} max_iter: 20 display: 0 snapshot_after_train: false test_iter: 1 test_interval: 1000' \
                   ' test_initialization: false'
            solver = caffe.get_solver(self.file('solver.prototxt', text))
            solver.net.copy_from(SHARED / 'golden/lenet/init.caffemodel')
            losses = []
            for _ in case['losses']:
                solver.step(1)
                losses.append(solver.loss)
            close(losses, case['losses'], 1e-4)

    @unittest.skipUnless((SHARED / 'golden').is_dir(), 'SHOAL_SHARED names no folder with golden numbers')
    def test_blobs_and_gradients_are_those_of_bvlc_caffe(self):
        wanted = json.loads((SHARED / 'golden/lenet/fb.json').read_text())
        net = caffe.Net(self.net_file(), caffe.TRAIN, weights=SHARED / 'golden/lenet/init.caffemodel')
        close(net.forward()['loss'], wanted['loss'], 1e-5)
        net.backward()
        for blob in wanted['blobs']:
            own = net.blobs[blob['name']]
            self.assertEqual(list(own.shape), blob['shape'])
            close(np.linalg.norm(own.data), blob['data']['l2'], 1e-4)
            close(own.data.ravel()[:8], blob['data']['first'], 1e-4, 1e-5)
        for gradient in wanted['param_gradients']:
            own = net.params[gradient['layer']][gradient['blob']].diff
            close(np.linalg.norm(own), gradient['diff']['l2'], 1e-4)
            close(own.ravel()[:8], gradient['diff']['first'], 1e-3, 1e-6)

    def test_an_array_of_a_data_layer_shows_each_batch(self):
        net = caffe.Net(self.net_file(), caffe.TEST)
        kept = net.blobs['data'].data
        seen = []
        for _ in range(3):
            net.forward()
            np.testing.assert_array_equal(kept, net.blobs['data'].data)
            seen.append(kept.copy())
        self.assertTrue((seen[0] != seen[1]).any())
        records = shoal.Records(self.folder / 'digits')
        close(seen[1][5], caffe.io.datum_to_array(records[105][1]) / 256)
        kept[...] = 0.5   # counts in a pass that begins behind the layer
        ones = net.forward(start='conv1', blobs=['conv1'])['conv1'].copy()
        kept[...] = 0
        self.assertTrue((net.forward(start='conv1', blobs=['conv1'])['conv1'] != ones).any())
        self.refused('its layer decides', net.blobs['data'].reshape, 1, 1, 28, 28)


if __name__ == '__main__':
    unittest.main()

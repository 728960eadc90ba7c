"""train(): what the program of this name does, in a process of Python."""
import json
import os
import signal
import socket
import subprocess
import sys

from support import SMALL, SMALL_SOLVER, TOOLS, Case, caffe, caffe_pb2, np, shoal, unittest, write_digits

DIGITS = '''
name: "digits"
layer {{ name: "data" type: "Data" top: "data" top: "label" transform_param {{ scale: 0.00390625 }}
         data_param {{ source: "{source}" batch_size: 20 backend: LMDB shared_file_system: true }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param {{ num_output: 10 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
'''
# A process of a job: argv has the solver, its rank, the port of process 0, and where to write what was called.
PROCESS = '''
import json, sys
import shoal
solver, rank, port, out, flags = sys.argv[1:6]
seen = {'before': [], 'after': [], 'records': []}
def after(iteration, rate, loss):
    seen['after'].append([iteration, rate, loss])
    if 'raise' in sys.argv and iteration == 3:
        raise ZeroDivisionError('in after')
seen['code'] = shoal.train(solver, num_clients=2, client_id=int(rank), master='127.0.0.1:' + port, threads=1,
                           before=lambda iteration, rate: seen['before'].append(iteration), after=after,
                           metrics=seen['records'].append, **json.loads(flags))
open(out, 'w').write(json.dumps(seen))
'''


def free_port():
    with socket.socket() as one:
        one.bind(('127.0.0.1', 0))
        return one.getsockname()[1]


class Training(Case):
    def setUp(self):
        super().setUp()
        write_digits(self.folder / 'digits')
        self.net_file = self.file('net.prototxt', DIGITS.format(source=self.folder / 'digits'))

    def solver(self, extra='max_iter: 12', name='solver'):
        return self.file(f'{name}.prototxt', f'net: "{self.net_file}" base_lr: 0.1 momentum: 0.9 lr_policy: "fixed" display: 4 '
                         f'random_seed: 3 snapshot_prefix: "{self.folder}/{name}" {extra}')

    def weights(self, name, iteration=12):
        return caffe.Net(self.net_file, caffe.TRAIN, weights=f'{self.folder}/{name}_iter_{iteration}.caffemodel').params['ip'][0].data.copy()


class Alone(Training):
    def test_it_is_what_a_solver_does(self):
        befores, afters, records = [], [], []
        code = shoal.train(self.solver(), threads=1, before=lambda *seen: befores.append(seen), after=lambda *seen: afters.append(seen),
                           metrics=records.append)
        self.assertEqual(code, 0)
        solver = caffe.SGDSolver(self.solver(name='other'), threads=1)
        losses = []
        for _ in range(12):
            solver.step(1)
            losses.append(solver.loss)
        np.testing.assert_array_equal(self.weights('solver'), solver.net.params['ip'][0].data)
        self.assertEqual([iteration for iteration, _ in befores], list(range(12)))
        self.assertEqual([iteration for iteration, _, _ in afters], list(range(1, 13)))
        self.assertEqual([loss for _, _, loss in afters], losses)
        np.testing.assert_allclose([rate for _, rate, _ in afters], 0.1, rtol=1e-6)
        self.assertEqual([one['clock'] for one in records if one['kind'] == 'clock'], list(range(12)))
        self.assertEqual([one['clock'] for one in records if one['kind'] == 'display'], [0, 4, 8])
        np.testing.assert_allclose(records[-1]['samples'], 20)

    def test_flags_are_those_of_a_call(self):
        solver = self.solver()
        shoal.train(solver, max_iter=3, metrics=self.folder / 'metrics', set='base_lr: 0.01')
        self.assertEqual(len(shoal.read_metrics(self.folder / 'metrics')['clock']), 3)
        rates = []
        shoal.train(solver, after=lambda iteration, rate, loss: rates.append(rate))
        np.testing.assert_allclose(rates, [0.1] * 12, rtol=1e-6)

    def test_a_message_is_a_solver_too(self):
        message = caffe_pb2.SolverParameter(net=self.net_file, base_lr=0.1, lr_policy='fixed', max_iter=2, random_seed=3,
                                            snapshot_prefix=str(self.folder / 'message'))
        self.assertEqual(shoal.train(message, weights=[]), 0)
        self.assertTrue((self.folder / 'message_iter_2.solverstate').exists())

    def test_wrong_calls(self):
        solver = self.solver()
        self.assertEqual(self.refused('did you mean --scheme?', shoal.train, solver, shceme='ssp').code, 2)
        self.refused('is not a value of this flag', shoal.train, solver, threads='many')
        self.refused('exclude each other', shoal.train, solver, snapshot='x.solverstate', weights='y')
        self.refused('cannot', shoal.train, str(self.folder / 'nowhere.prototxt'))
        self.refused('known are --help', shoal.train, solver, help=True)
        def again(*_):
            shoal.train(solver)
        self.refused('once at a time', shoal.train, solver, before=again)
        self.assertEqual(shoal.train(solver, max_iter=1), 0)   # all is as before

    def test_exceptions_are_raised_as_they_are(self):
        def fails(*_):
            raise ZeroDivisionError('mine')
        for moment in ('before', 'after', 'metrics'):
            with self.assertRaisesRegex(ZeroDivisionError, 'mine'):
                shoal.train(self.solver(), **{moment: fails})

    def test_control_c_ends_it_after_an_iteration(self):
        reached = []

        def interrupt(iteration, rate, loss):
            reached.append(iteration)
            if iteration == 5:
                os.kill(os.getpid(), signal.SIGINT)
        with self.assertRaises(KeyboardInterrupt):
            shoal.train(self.solver('max_iter: 1000000'), after=interrupt)
        self.assertLess(len(reached), 1000)
        self.assertTrue((self.folder / f'solver_iter_{reached[-1]}.solverstate').exists())


class Jobs(Training):
    def start(self, rank, port, solver, *words, program=None, **flags):
        self.outs = getattr(self, 'outs', {})
        self.outs[rank] = self.folder / f'out{rank}.json'
        command = [sys.executable, self.file('process.py', PROCESS), solver, str(rank), str(port), str(self.outs[rank]), json.dumps(flags), *words]
        if program:
            command = [program, f'--solver={solver}', '--num_clients=2', f'--client_id={rank}', f'--master=127.0.0.1:{port}', '--threads=1',
                       *(f'--{name}={value}' for name, value in flags.items())]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def finish(self, *processes):
        ended = []
        for process in processes:
            try:
                said = process.communicate(timeout=120)[1]
            finally:
                process.kill()
            ended.append((process.returncode, said))
        return ended

    def run_job(self, solver, **flags):
        port = free_port()
        ended = self.finish(*(self.start(rank, port, solver, **flags) for rank in (0, 1)))
        for code, said in ended:
            self.assertEqual(code, 0, said)
        return [json.loads(self.outs[rank].read_text()) for rank in (0, 1)]

    def test_two_processes_train_as_one_with_both_batches(self):
        seen = self.run_job(self.solver('max_iter: 6'), scheme='bsp')
        for worker, one in enumerate(seen):
            self.assertEqual(one['code'], 0)
            self.assertEqual(one['before'], list(range(6)))
            self.assertEqual([iteration for iteration, _, _ in one['after']], list(range(1, 7)))
            clocks = [record for record in one['records'] if record['kind'] == 'clock']
            self.assertEqual([record['worker'] for record in clocks], [worker] * 6)
            self.assertGreater(sum(record['bytes_sent'] for record in clocks), 0)
        # The two read different records.
        self.assertNotEqual(seen[0]['after'][0][2], seen[1]['after'][0][2])
        # The first update is that by the mean gradient of both batches: one process with iter_size: 2 has it.
        one = self.solver('max_iter: 6 iter_size: 2', name='one')
        shoal.train(one, threads=1)
        np.testing.assert_allclose(self.weights('solver', 6), self.weights('one', 6), rtol=1e-3, atol=1e-5)

    def test_a_process_of_python_and_the_program_are_one_job(self):
        if not (TOOLS / 'train').exists():
            self.skipTest(f'{TOOLS} has no train')
        port, solver = free_port(), self.solver('max_iter: 6')
        ended = self.finish(self.start(0, port, solver, program=TOOLS / 'train', scheme='ssp', staleness=1),
                            self.start(1, port, solver, scheme='ssp', staleness=1))
        for code, said in ended:
            self.assertEqual(code, 0, said)
        self.assertEqual([iteration for iteration, _, _ in json.loads(self.outs[1].read_text())['after']], list(range(1, 7)))
        self.assertIn('Optimization Done', ended[0][1])

    def test_an_exception_ends_the_job_for_all(self):
        port, solver = free_port(), self.solver('max_iter: 100000')
        ended = self.finish(self.start(0, port, solver, on_lost='STOP'), self.start(1, port, solver, 'raise', on_lost='STOP'))
        self.assertNotEqual(ended[0][0], 0)
        self.assertIn('ZeroDivisionError: in after', ended[1][1])
        self.assertIn('in after', ended[0][1])


class Callbacks(Case):
    """solver.add_callback, as pycaffe has it."""

    def solver(self):
        path = self.file('net.prototxt', SMALL)
        solver = caffe.SGDSolver(self.file('solver.prototxt', f'net: "{path}" {SMALL_SOLVER}'))
        solver.net.blobs['data'].data[...] = np.random.default_rng(1).normal(size=(6, 2, 5, 4))
        return solver

    def test_they_are_called_in_order(self):
        solver, calls = self.solver(), []
        solver.add_callback(lambda: calls.append(('start', solver.iter)),
                            lambda: calls.append(('gradients', float(np.abs(solver.net.params['ip'][0].diff).max()) > 0)))
        solver.add_callback(lambda: calls.append('second'), lambda: None)
        solver.step(2)
        self.assertEqual(calls, [('start', 0), 'second', ('gradients', True), ('start', 1), 'second', ('gradients', True)])

    def test_gradients_can_be_changed(self):
        solver, twin = self.solver(), self.solver()
        before = solver.net.params['ip'][0].data.copy()

        def halve():
            solver.net.params['conv'][0].diff[...] *= 0.5
            solver.net.params['ip'][0].diff[...] = 0
        solver.add_callback(lambda: None, halve)
        for one in (solver, twin):
            one.step(1)
        np.testing.assert_array_equal(solver.net.params['ip'][0].data, before)
        self.assertTrue((twin.net.params['ip'][0].data != before).any())
        first = self.solver().net.params['conv'][0].data
        np.testing.assert_allclose(solver.net.params['conv'][0].data - first, (twin.net.params['conv'][0].data - first) / 2, rtol=1e-3, atol=1e-6)

    def test_params_can_be_changed_at_the_start(self):
        solver = self.solver()

        def start():
            solver.net.params['ip'][1].data[...] = 7
        solver.add_callback(start, lambda: None)
        solver.step(3)
        self.assertLess(float(np.abs(solver.net.params['ip'][1].data - 7).max()), 0.2)

    def test_exceptions_end_the_step(self):
        solver = self.solver()
        solver.add_callback(lambda: None, lambda: 1 / 0)
        with self.assertRaises(ZeroDivisionError):
            solver.step(1)
        self.refused('computes already', self.busy)

    def busy(self):
        solver = self.solver()
        solver.add_callback(lambda: solver.step(1), lambda: None)
        solver.step(1)


if __name__ == '__main__':
    unittest.main()

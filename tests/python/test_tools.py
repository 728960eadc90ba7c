"""Numbers of the package beside those of the tools."""
import os
import subprocess

from support import ROOT, TOOLS, Case, caffe, close, np, shoal, unittest, write_digits


@unittest.skipUnless((TOOLS / 'extract_features').exists() and (TOOLS / 'test').exists(), f'{TOOLS} has no tools')
class Tools(Case):
    def setUp(self):
        super().setUp()
        write_digits(self.folder / 'digits')
        text = (ROOT / 'models/lenet/train_val.prototxt').read_text()
        for source in ('train', 'test'):
            text = text.replace(f'examples/mnist/mnist_{source}_lmdb', str(self.folder / 'digits'))
        self.model = self.file('lenet.prototxt', text)
        self.weights = str(self.folder / 'x.caffemodel')
        caffe.Net(self.model, caffe.TEST, seed=1).save(self.weights)

    def run_tool(self, *words):
        ran = subprocess.run([TOOLS / words[0], *words[1:]], env={**os.environ, 'GLOG_minloglevel': '0'}, stderr=subprocess.PIPE, text=True, timeout=300, check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return ran.stderr

    def test_features_are_those_of_extract_features(self):
        out = self.folder / 'ip1'
        self.run_tool('extract_features', f'--model={self.model}', f'--weights={self.weights}', '--extract_feature_blob_names=ip1',
                      f'--save_feature_leveldb_names={out}', '--num_mini_batches=2', '--backend=datumfile')
        net = caffe.Net(self.model, caffe.TEST, weights=self.weights)
        own = np.concatenate([net.forward(blobs=['ip1'])['ip1'].copy() for _ in range(2)])
        wanted = np.array([datum.float_data for _, datum in shoal.Records(out)])
        self.assertEqual(wanted.shape, (200, 500))
        close(own, wanted, 1e-4, 1e-5)

    def test_losses_are_those_of_test(self):
        said = self.run_tool('test', f'--model={self.model}', f'--weights={self.weights}', '--iterations=2')
        net = caffe.Net(self.model, caffe.TEST, weights=self.weights)
        mean = np.mean([float(net.forward()['loss']) for _ in range(2)])
        wanted = float(said[said.index('Loss: ') + 6:].split()[0])
        close(mean, wanted, 1e-4)


if __name__ == '__main__':
    unittest.main()

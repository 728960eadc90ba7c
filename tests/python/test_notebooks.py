"""The scripts of examples/notebooks run, and the notebooks beside them are theirs."""
import os
import subprocess
import sys

from support import ROOT, Case, unittest

FOLDER = ROOT / 'examples/notebooks'
sys.path.insert(0, str(ROOT / 'scripts'))
import render_notebooks  # noqa: E402


class Notebooks(Case):
    """Each script asserts what it shows."""

    def run_script(self, name, extra=''):
        text = (FOLDER / f'{name}.py').read_text() + extra
        path = os.pathsep.join(filter(None, (str(FOLDER), os.environ.get('PYTHONPATH'))))
        ran = subprocess.run([sys.executable, self.file(f'{name}.py', text)], cwd=self.folder, timeout=300, check=False, capture_output=True,
                             text=True, env={**os.environ, 'PYTHONPATH': path, 'MPLBACKEND': 'agg', 'TMPDIR': str(self.folder)})
        return ran.returncode, ran.stdout, ran.stderr

    def runs(self, name, *words):
        code, said, errors = self.run_script(name)
        self.assertEqual(code, 0, said + errors)
        for word in words:
            self.assertIn(word, said)

    def test_classification(self):
        self.runs('classification', 'conv1  (12, 3, 5, 5) (12,)')

    def test_learning_lenet(self):
        self.runs('learning_lenet', 'conv2  (64, 50, 8, 8)', 'after 150 steps')

    def test_net_surgery(self):
        self.runs('net_surgery', 'fc3-conv: weights (64, 24, 4, 4)', 'the largest difference is below 1e-5: True')

    def test_fine_tuning(self):
        self.runs('fine_tuning', 'pretrained', 'scratch')

    def test_logistic_regression(self):
        self.runs('logistic_regression', 'with a hidden layer')

    def test_a_failed_assertion_fails_the_script(self):
        code, _, errors = self.run_script('net_surgery', 'conv_params["fc4-conv"][1][0] += 1\nout = net_full_conv.forward()["prob"][0]\n'
                                          'assert np.abs(alone - out[:, 8, 8]).max() < 1e-5, "not the same"\n')
        self.assertNotEqual(code, 0)
        self.assertIn('not the same', errors)


class Rendered(Case):
    def test_notebooks_are_their_scripts(self):
        self.assertEqual({path.stem for path in render_notebooks.scripts()},
                         {'classification', 'fine_tuning', 'learning_lenet', 'logistic_regression', 'net_surgery'})
        self.assertEqual([line for path in render_notebooks.scripts() for line in render_notebooks.complaints(path)], [])

    def test_a_changed_script_is_seen(self):
        for path in (FOLDER / 'net_surgery.py', FOLDER / 'net_surgery.ipynb'):
            self.file(path.name, path.read_text())
        script = self.folder / 'net_surgery.py'
        self.assertEqual(render_notebooks.complaints(script), [])
        script.write_text(script.read_text().replace('biases[0] = 1 ', 'biases[0] = 2 '))
        self.assertIn('not those of net_surgery.py', render_notebooks.complaints(script)[0])
        (self.folder / 'net_surgery.ipynb').unlink()
        self.assertIn('missing', render_notebooks.complaints(script)[0])

    def test_cells(self):
        text = '"""Not a cell."""\n# %% [markdown]\n# # Title\n#\n# words\n\n# %%\nx = 1\n\n\n# %%\ny = 2\n'
        self.assertEqual(render_notebooks.cells_of(text), [('markdown', '# Title\n\nwords'), ('code', 'x = 1'), ('code', 'y = 2')])
        with self.assertRaisesRegex(ValueError, 'neither'):
            render_notebooks.cells_of('# %% [raw]\n')


if __name__ == '__main__':
    unittest.main()

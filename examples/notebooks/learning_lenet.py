# %% [markdown]
# # Learning LeNet
#
# This notebook writes LeNet in Python, and trains it step by step with a look into the solver after each. The digits are
# 320 of MNIST: 240 to learn from, each at nine places, and 80 to test with.

# %%
import tempfile
from pathlib import Path

import numpy as np
import shoal.caffe as caffe
from shoal.caffe import layers as L, params as P
from shoal.caffe.proto import caffe_pb2

import data
import show

caffe.set_mode_cpu()
folder = Path(tempfile.mkdtemp())
images, labels = data.digits()
train_source = data.write_lmdb(folder / 'train', *data.shifted(images[:240], labels[:240]))
test_source = data.write_lmdb(folder / 'test', images[240:], labels[240:])
show.images(images[:20])


# %% [markdown]
# ## Write the net

# %%
def lenet(source, batch_size):
    """LeNet, from records to a loss."""
    n = caffe.NetSpec()
    n.data, n.label = L.Data(batch_size=batch_size, backend=P.Data.LMDB, source=source, transform_param={'scale': 1 / 255}, ntop=2)
    n.conv1 = L.Convolution(n.data, kernel_size=5, num_output=20, weight_filler={'type': 'xavier'})
    n.pool1 = L.Pooling(n.conv1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.conv2 = L.Convolution(n.pool1, kernel_size=5, num_output=50, weight_filler={'type': 'xavier'})
    n.pool2 = L.Pooling(n.conv2, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.fc1 = L.InnerProduct(n.pool2, num_output=500, weight_filler={'type': 'xavier'})
    n.relu1 = L.ReLU(n.fc1, in_place=True)
    n.score = L.InnerProduct(n.relu1, num_output=10, weight_filler={'type': 'xavier'})
    n.loss = L.SoftmaxWithLoss(n.score, n.label)
    return n.to_proto()


(folder / 'train.prototxt').write_text(str(lenet(train_source, 64)))
(folder / 'test.prototxt').write_text(str(lenet(test_source, 80)))
print((folder / 'train.prototxt').read_text()[:600], '...')


# %% [markdown]
# ## Load the solver and look at its nets

# %%
def solver_file(train, test, **fields):
    """Writes a solver for these nets. Returns its file."""
    message = caffe_pb2.SolverParameter(train_net=str(train), test_net=[str(test)], test_iter=[1], test_interval=1000, base_lr=0.01,
                                        momentum=0.9, weight_decay=0.0005, lr_policy='inv', gamma=0.0001, power=0.75, max_iter=150,
                                        display=0, snapshot_prefix=str(folder / 'lenet'), snapshot_after_train=False,
                                        test_initialization=False, random_seed=1)
    for name, value in fields.items():
        setattr(message, name, value)
    path = folder / f'solver_{len(list(folder.glob("solver_*")))}.prototxt'
    path.write_text(str(message))
    return str(path)


solver = caffe.SGDSolver(solver_file(folder / 'train.prototxt', folder / 'test.prototxt'))
for name, blob in solver.net.blobs.items():
    print(f'{name:6} {blob.data.shape}')
for name, param in solver.net.params.items():
    print(f'{name:6} {param[0].data.shape}')
assert solver.net.blobs['conv2'].data.shape == (64, 50, 8, 8)

# %% [markdown]
# ## A first pass, and a first step

# %%
solver.net.forward()
solver.test_nets[0].forward()
print('labels of the first train batch:', solver.net.blobs['label'].data[:8].astype(int))
show.images(solver.net.blobs['data'].data[:8, 0])
print(f'the loss of ten classes by chance is {np.log(10):.2f}; here it is {float(solver.net.blobs["loss"].data):.2f}')
assert 1.5 < float(solver.net.blobs['loss'].data) < 4

# %%
before, gradients = solver.net.params['conv1'][0].data.copy(), []
solver.add_callback(lambda: None, lambda: gradients.append(solver.net.params['conv1'][0].diff.copy()))
solver.step(1)
show.images(gradients[0][:, 0], 'gradients of the first filters', columns=10)
change = solver.net.params['conv1'][0].data - before
assert np.abs(gradients[0]).max() > 0
assert np.allclose(change, -0.01 * (gradients[0] + 0.0005 * before), atol=1e-6)   # base_lr and weight_decay


# %% [markdown]
# ## Train in a loop of our own
#
# After every 25 steps the test net, which has the same params, classifies the digits that were kept back.

# %%
def train(solver, iterations, test_every=25):
    """Trains. Returns the loss of each iteration, and [(iteration, accuracy)] of the tests."""
    losses, accuracies = [], []
    for iteration in range(iterations):
        solver.step(1)
        losses.append(float(solver.net.blobs['loss'].data))
        if (iteration + 1) % test_every == 0:
            solver.test_nets[0].forward()
            right = solver.test_nets[0].blobs['score'].data.argmax(1) == solver.test_nets[0].blobs['label'].data
            accuracies.append((iteration + 1, float(right.mean())))
    return losses, accuracies


losses, accuracies = train(solver, 150)
for iteration, accuracy in accuracies:
    print(f'after {iteration:3} steps {accuracy:.2f} of the test digits are right')
show.curves('iteration', train_loss=(range(150), losses), test_accuracy=tuple(zip(*accuracies)))
assert np.mean(losses[-20:]) < 0.3 * np.mean(losses[:5])
assert accuracies[-1][1] >= 0.85

# %% [markdown]
# ## How sure it is while it learns
#
# The scores of one digit become probabilities, here worked out in NumPy.

# %%
scores = solver.test_nets[0].blobs['score'].data[:8]
probabilities = np.exp(scores - scores.max(1, keepdims=True))
probabilities /= probabilities.sum(1, keepdims=True)
for row, label in zip(probabilities, solver.test_nets[0].blobs['label'].data):
    print(f'a {int(label)} is taken for a {row.argmax()} with probability {row.max():.2f}')
assert np.allclose(probabilities.sum(1), 1, atol=1e-5)


# %% [markdown]
# ## Change the net and the solver
#
# A net of one layer, trained by Adam, learns less.

# %%
def linear(source, batch_size):
    """One layer, from records to a loss."""
    n = caffe.NetSpec()
    n.data, n.label = L.Data(batch_size=batch_size, backend=P.Data.LMDB, source=source, transform_param={'scale': 1 / 255}, ntop=2)
    n.score = L.InnerProduct(n.data, num_output=10, weight_filler={'type': 'xavier'})
    n.loss = L.SoftmaxWithLoss(n.score, n.label)
    return n.to_proto()


(folder / 'linear_train.prototxt').write_text(str(linear(train_source, 64)))
(folder / 'linear_test.prototxt').write_text(str(linear(test_source, 80)))
other = caffe.get_solver(solver_file(folder / 'linear_train.prototxt', folder / 'linear_test.prototxt', type='Adam', momentum=0.9,
                                     momentum2=0.999, base_lr=0.001, lr_policy='fixed'))
linear_losses, linear_accuracies = train(other, 150)
print(f'one layer: {linear_accuracies[-1][1]:.2f}; LeNet: {accuracies[-1][1]:.2f}')
assert other.param.type == 'Adam' and 0.6 <= linear_accuracies[-1][1] <= accuracies[-1][1]

# %% [markdown]
# # Logistic regression, and one layer more
#
# Caffe trains on any vectors. Here two classes of points in four dimensions are told apart by logistic regression, and then
# by a net with a hidden layer, since the border between the classes is not straight.

# %%
import tempfile
from pathlib import Path

import numpy as np
import shoal
import shoal.caffe as caffe
from shoal.caffe import layers as L, params as P
from shoal.caffe.proto import caffe_pb2

import show

caffe.set_mode_cpu()
folder = Path(tempfile.mkdtemp())

# %% [markdown]
# ## Make the data
#
# Two numbers of a point decide on its class, and two say nothing.

# %%
random = np.random.default_rng(1)
points = random.normal(size=(4000, 4)).astype(np.float32)
classes = (points[:, 0] + points[:, 1] ** 2 + 0.2 * random.normal(size=4000) > 0.8).astype(int)
train_points, test_points, train_classes, test_classes = points[:3000], points[3000:], classes[:3000], classes[3000:]


def write(path, points, classes):
    """Writes points as float records of 4 x 1 x 1."""
    with shoal.RecordWriter(path) as writer:
        for number, (point, class_) in enumerate(zip(points, classes)):
            writer.put(f'{number:08}', caffe.io.array_to_datum(point.reshape(4, 1, 1), int(class_)))
    return str(path)


train_source, test_source = write(folder / 'train', train_points, train_classes), write(folder / 'test', test_points, test_classes)
key, datum = shoal.Records(train_source)[0]
assert np.array_equal(caffe.io.datum_to_array(datum).ravel(), train_points[0]) and datum.label == train_classes[0]

# %% [markdown]
# ## Logistic regression, worked out in NumPy, for comparison

# %%
weights, bias = np.zeros(4), 0.0
for _ in range(2000):
    off = 1 / (1 + np.exp(-(train_points @ weights + bias))) - train_classes
    weights, bias = weights - 0.3 * off @ train_points / len(off), bias - 0.3 * off.mean()
by_numpy = float((((test_points @ weights + bias) > 0) == test_classes).mean())
print(f'NumPy: {by_numpy:.3f} of the test points are right')


# %% [markdown]
# ## The same as a net

# %%
def logreg(source, batch_size):
    """Logistic regression: an inner product and a loss."""
    n = caffe.NetSpec()
    n.data, n.label = L.Data(batch_size=batch_size, source=source, backend=P.Data.LMDB, ntop=2)
    n.ip1 = L.InnerProduct(n.data, num_output=2, weight_filler={'type': 'xavier'})
    n.accuracy = L.Accuracy(n.ip1, n.label)
    n.loss = L.SoftmaxWithLoss(n.ip1, n.label)
    return n.to_proto()


def nonlinear(source, batch_size):
    """A hidden layer between."""
    n = caffe.NetSpec()
    n.data, n.label = L.Data(batch_size=batch_size, source=source, backend=P.Data.LMDB, ntop=2)
    n.ip1 = L.InnerProduct(n.data, num_output=40, weight_filler={'type': 'xavier'})
    n.relu1 = L.ReLU(n.ip1, in_place=True)
    n.ip2 = L.InnerProduct(n.relu1, num_output=2, weight_filler={'type': 'xavier'})
    n.accuracy = L.Accuracy(n.ip2, n.label)
    n.loss = L.SoftmaxWithLoss(n.ip2, n.label)
    return n.to_proto()


def solver_of(train_net_path, test_net_path):
    """Writes a solver. Returns its file."""
    s = caffe_pb2.SolverParameter()
    s.train_net = train_net_path
    s.test_net.append(test_net_path)
    s.test_interval = 1000
    s.test_iter.append(10)
    s.max_iter = 2000
    s.base_lr = 0.05
    s.lr_policy = 'step'
    s.gamma = 0.1
    s.stepsize = 1500
    s.momentum = 0.9
    s.weight_decay = 5e-5
    s.display = 1000
    s.random_seed = 1
    s.snapshot_prefix = str(folder / 'points')
    s.snapshot_after_train = False
    path = folder / 'solver.prototxt'
    path.write_text(str(s))
    return str(path)


def learn(make):
    """Trains the net. Returns the solver and the accuracy on the test points."""
    (folder / 'train.prototxt').write_text(str(make(train_source, 50)))
    (folder / 'test.prototxt').write_text(str(make(test_source, 100)))
    solver = caffe.get_solver(solver_of(str(folder / 'train.prototxt'), str(folder / 'test.prototxt')))
    solver.solve()
    accuracies = []
    for _ in range(10):
        solver.test_nets[0].forward()
        accuracies.append(float(solver.test_nets[0].blobs['accuracy'].data))
    return solver, float(np.mean(accuracies))


caffe.init_log(1)
regression, by_net = learn(logreg)
print(f'a net: {by_net:.3f} of the test points are right')
assert abs(by_net - by_numpy) < 0.03
learned = regression.net.params['ip1'][0].data
towards = learned[1] - learned[0]
assert towards @ weights / np.linalg.norm(towards) / np.linalg.norm(weights) > 0.95   # the same direction

# %% [markdown]
# ## With a hidden layer

# %%
_, by_layers = learn(nonlinear)
print(f'with a hidden layer: {by_layers:.3f}')
assert by_layers > by_net + 0.05 and by_layers >= 0.9

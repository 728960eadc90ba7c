# %% [markdown]
# # Fine-tuning
#
# A net that has learned one thing learns another from few examples. Here it learns the digits 0 to 4, and then the digits
# 5 to 9 from 20 examples, with the same layers below and a new one on top.

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
low, high = np.flatnonzero(labels < 5), np.flatnonzero(labels >= 5)
few, rest = high[:20], high[20:]
sources = {'low': data.write_lmdb(folder / 'low', *data.shifted(images[low], labels[low])),
           'few': data.write_lmdb(folder / 'few', images[few], labels[few] - 5),
           'rest': data.write_lmdb(folder / 'rest', images[rest], labels[rest] - 5)}
print(len(low), 'digits from 0 to 4;', len(few), 'from 5 to 9 to learn from, and', len(rest), 'to test with')
show.images(images[few])

# %% [markdown]
# ## The net
#
# Params are copied by the layer's name. So the last layer has another name in the second task, and begins anew.

# %%
weight_param = {'lr_mult': 1, 'decay_mult': 1}
bias_param = {'lr_mult': 2, 'decay_mult': 0}
learned_param = [weight_param, bias_param]
frozen_param = [{'lr_mult': 0}] * 2


def digit_net(source, batch_size, last, learn_all=True):
    """A net with `last` as the name of its last layer. learn_all=False: the layers below are left as they are."""
    param = learned_param if learn_all else frozen_param
    n = caffe.NetSpec()
    n.data, n.label = L.Data(batch_size=batch_size, backend=P.Data.LMDB, source=source, transform_param={'scale': 1 / 255}, ntop=2)
    n.conv1 = L.Convolution(n.data, kernel_size=5, num_output=20, param=param, weight_filler={'type': 'xavier'})
    n.pool1 = L.Pooling(n.conv1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.conv2 = L.Convolution(n.pool1, kernel_size=5, num_output=50, param=param, weight_filler={'type': 'xavier'})
    n.pool2 = L.Pooling(n.conv2, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.fc3 = L.InnerProduct(n.pool2, num_output=100, param=param, weight_filler={'type': 'xavier'})
    n.relu3 = L.ReLU(n.fc3, in_place=True)
    n[last] = L.InnerProduct(n.relu3, num_output=5, param=learned_param, weight_filler={'type': 'xavier'})
    n.loss = L.SoftmaxWithLoss(n[last], n.label)
    n.acc = L.Accuracy(n[last], n.label)
    return n.to_proto()


def make_solver(name, train_net, test_net=None, base_lr=0.01):
    """An SGD solver for these nets, NetParameters."""
    message = caffe_pb2.SolverParameter(train_net_param=train_net, base_lr=base_lr, momentum=0.9, weight_decay=0.0005, lr_policy='fixed',
                                        max_iter=1000, display=0, snapshot_prefix=str(folder / name), snapshot_after_train=False,
                                        random_seed=1)
    if test_net is not None:
        message.test_net_param.add().CopyFrom(test_net)
        message.test_iter.append(1)
        message.test_interval, message.test_initialization = 1000, False
    return caffe.SGDSolver(message)


# %% [markdown]
# ## Learn the first task

# %%
first = make_solver('low', digit_net(sources['low'], 64, 'fc4'))
first.step(150)
weights = str(folder / 'low.caffemodel')
first.net.save(weights)
print('accuracy on its last batch:', round(float(first.net.blobs['acc'].data), 2))
assert float(first.net.blobs['acc'].data) >= 0.95


# %% [markdown]
# ## Learn the second, with these weights and without

# %%
def run_solvers(niter, solvers, disp_interval=10):
    """Trains solvers side by side, by name. Returns the losses and the accuracies of each."""
    blobs = ('loss', 'acc')
    loss, acc = ({name: np.zeros(niter) for name, _ in solvers} for _ in blobs)
    for it in range(niter):
        for name, s in solvers:
            s.step(1)
            loss[name][it], acc[name][it] = (float(s.net.blobs[b].data) for b in blobs)
        if it % disp_interval == 0 or it + 1 == niter:
            print(f'{it:3})', '; '.join(f'{name}: loss={loss[name][it]:.2f}, acc={acc[name][it]:.0%}' for name, _ in solvers))
    return loss, acc


def accuracy_of(solver):
    """The part of the unseen digits that are classified rightly."""
    return float(np.mean([float(solver.test_nets[0].forward()['acc']) for _ in range(2)]))


def second_solver(name, learn_all):
    """A solver of the second task."""
    return make_solver(name, digit_net(sources['few'], 20, 'fc4_high', learn_all), digit_net(sources['rest'], len(rest), 'fc4_high'))


tuned, scratch = second_solver('tuned', learn_all=False), second_solver('scratch', learn_all=False)
tuned.net.copy_from(weights)
kept = tuned.net.params['conv1'][0].data.copy()
loss, acc = run_solvers(60, [('pretrained', tuned), ('scratch', scratch)])
show.curves('iteration', **{name: (range(60), values) for name, values in loss.items()})
accuracy = {'pretrained': accuracy_of(tuned), 'scratch': accuracy_of(scratch)}
print('the new layer alone, on unseen digits:', {name: f'{value:.0%}' for name, value in accuracy.items()})
assert np.array_equal(tuned.net.params['conv1'][0].data, kept)          # lr_mult: 0
assert loss['pretrained'][-1] < loss['scratch'][-1]
assert accuracy['pretrained'] > accuracy['scratch'] and accuracy['pretrained'] >= 0.6

# %% [markdown]
# ## Tune all layers
#
# From these weights all layers learn, at a lower rate.

# %%
tuned_weights = str(folder / 'tuned.caffemodel')
tuned.net.save(tuned_weights)
whole = make_solver('whole', digit_net(sources['few'], 20, 'fc4_high'), digit_net(sources['rest'], len(rest), 'fc4_high'), base_lr=0.003)
whole.net.copy_from(tuned_weights)
assert abs(accuracy_of(whole) - accuracy['pretrained']) < 1e-6
run_solvers(60, [('all layers', whole)], disp_interval=20)
accuracy['all layers'] = accuracy_of(whole)
print('on unseen digits:', {name: f'{value:.0%}' for name, value in accuracy.items()})
assert (whole.net.params['conv1'][0].data != kept).any()
assert accuracy['all layers'] >= accuracy['pretrained'] - 0.03

# %% [markdown]
# # Net surgery
#
# This notebook changes a net by hand. First it writes filters into a convolution. Then it makes a classifier, whose last
# layers are fully connected, into a net of convolutions alone, which classifies every place of a larger picture in one pass.

# %%
import tempfile
from pathlib import Path

import numpy as np
import shoal.caffe as caffe
from shoal.caffe import layers as L, params as P

import data
import show

caffe.set_mode_cpu()
caffe.set_random_seed(1)
folder = Path(tempfile.mkdtemp())

# %% [markdown]
# ## Design filters

# %%
n = caffe.NetSpec()
n.data = L.Input(shape={'dim': [1, 1, 28, 28]})
n.conv = L.Convolution(n.data, num_output=3, kernel_size=5, weight_filler={'type': 'gaussian', 'std': 0.01})
net = caffe.Net(n.to_proto(), caffe.TEST)
print('blobs', list(net.blobs), 'and params', list(net.params))

images, labels = data.digits()
image = images[0].astype(np.float32) / 255
net.blobs['data'].reshape(1, 1, *image.shape)
net.blobs['data'].data[...] = image
net.forward()
drawn = net.blobs['conv'].data[0].copy()
show.images([image, *drawn], 'filters as they were drawn')

# %%
kernels, biases = net.params['conv'][0].data, net.params['conv'][1].data
biases[0] = 1                                                       # the output grows by as much
net.forward()
assert np.allclose(net.blobs['conv'].data[0, 0], drawn[0] + 1, atol=1e-5)
biases[0] = 0

reach = np.arange(-2, 3)
blur = np.exp(-(reach[:, np.newaxis] ** 2 + reach ** 2) / 2)
sobel = np.outer([1, 2, 0, -2, -1], [1, 4, 6, 4, 1]) / 48
kernels[0, 0], kernels[1, 0], kernels[2, 0] = blur / blur.sum(), sobel, sobel.T
net.forward()
show.images([image, *net.blobs['conv'].data[0]], 'blurred, and edges across and down')
by_hand = sum(blur[y, x] / blur.sum() * image[y:y + 24, x:x + 24] for y in range(5) for x in range(5))
assert np.allclose(net.blobs['conv'].data[0, 0], by_hand, atol=1e-5)

# %% [markdown]
# ## Train a classifier of single digits


# %%
def classifier(bottom, label=None):
    """A net for 28 x 28 digits with two fully connected layers."""
    n = caffe.NetSpec()
    n.data = bottom
    if label is not None:
        n.label = label
    n.conv1 = L.Convolution(n.data, kernel_size=5, num_output=16, weight_filler={'type': 'xavier'})
    n.pool1 = L.Pooling(n.conv1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.conv2 = L.Convolution(n.pool1, kernel_size=5, num_output=24, weight_filler={'type': 'xavier'})
    n.pool2 = L.Pooling(n.conv2, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.fc3 = L.InnerProduct(n.pool2, num_output=64, weight_filler={'type': 'xavier'})
    n.relu3 = L.ReLU(n.fc3, in_place=True)
    n.fc4 = L.InnerProduct(n.relu3, num_output=10, weight_filler={'type': 'xavier'})
    if label is None:
        n.prob = L.Softmax(n.fc4)
    else:
        n.loss = L.SoftmaxWithLoss(n.fc4, n.label)
    return n.to_proto()


source = data.write_lmdb(folder / 'digits', *data.shifted(images[:240], labels[:240]))
read, label = L.Data(batch_size=64, backend=P.Data.LMDB, source=source, transform_param={'scale': 1 / 255}, ntop=2)
(folder / 'train.prototxt').write_text(str(classifier(read, label)))
(folder / 'deploy.prototxt').write_text(str(classifier(L.Input(shape={'dim': [1, 1, 28, 28]}))))
(folder / 'solver.prototxt').write_text(
    f'train_net: "{folder}/train.prototxt" base_lr: 0.01 momentum: 0.9 lr_policy: "fixed" max_iter: 300 display: 0\n'
    f'snapshot_prefix: "{folder}/digits" snapshot_after_train: false random_seed: 1\n')
solver = caffe.SGDSolver(str(folder / 'solver.prototxt'))
solver.step(300)
solver.net.save(str(folder / 'digits.caffemodel'))

net = caffe.Net(str(folder / 'deploy.prototxt'), str(folder / 'digits.caffemodel'), caffe.TEST)
params = ['fc3', 'fc4']
fc_params = {name: (net.params[name][0].data, net.params[name][1].data) for name in params}
for name in params:
    print(f'{name}: weights {fc_params[name][0].shape}, biases {fc_params[name][1].shape}')


# %% [markdown]
# ## Make it fully convolutional
#
# `fc3` looks at 24 channels of 4 x 4, so it is a convolution with a kernel of 4 x 4. `fc4` looks at one place. The numbers
# of a filter have the same order in both kinds of layers, so the weights fit as they are.

# %%
def convolutional(height, width):
    """The same net with convolutions in the place of the fully connected layers, for pictures of any size."""
    n = caffe.NetSpec()
    n.data = L.Input(shape={'dim': [1, 1, height, width]})
    n.conv1 = L.Convolution(n.data, kernel_size=5, num_output=16)
    n.pool1 = L.Pooling(n.conv1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.conv2 = L.Convolution(n.pool1, kernel_size=5, num_output=24)
    n.pool2 = L.Pooling(n.conv2, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n['fc3-conv'] = L.Convolution(n.pool2, kernel_size=4, num_output=64)
    n.relu3 = L.ReLU(n['fc3-conv'], in_place=True)
    n['fc4-conv'] = L.Convolution(n.relu3, kernel_size=1, num_output=10)
    n.prob = L.Softmax(n['fc4-conv'])
    return n.to_proto()


(folder / 'full_conv.prototxt').write_text(str(convolutional(60, 60)))
net_full_conv = caffe.Net(str(folder / 'full_conv.prototxt'), str(folder / 'digits.caffemodel'), caffe.TEST)
params_full_conv = ['fc3-conv', 'fc4-conv']
conv_params = {name: (net_full_conv.params[name][0].data, net_full_conv.params[name][1].data) for name in params_full_conv}
for fc, conv in zip(params, params_full_conv):
    print(f'{conv}: weights {conv_params[conv][0].shape}, biases {conv_params[conv][1].shape}')
    conv_params[conv][0].flat = fc_params[fc][0].flat
    conv_params[conv][1][...] = fc_params[fc][1]
net_full_conv.save(str(folder / 'full_conv.caffemodel'))

# %% [markdown]
# ## Classify every place of a larger picture
#
# Four digits lie in a picture of 60 x 60. Both poolings have a stride of 2, so the map's neighbours are 4 pixels apart.

# %%
scene = np.zeros((60, 60), np.float32)
for index, (row, column) in enumerate([(0, 0), (0, 32), (32, 0), (32, 32)]):
    scene[row:row + 28, column:column + 28] = images[240 + index] / 255
net_full_conv.blobs['data'].data[...] = scene
out = net_full_conv.forward()['prob'][0]
print('probabilities for', out.shape[1], 'x', out.shape[2], 'places')
show.images([scene, out.argmax(0), out.max(0)], 'the picture, the digits found, and how surely')
assert out.shape == (10, 9, 9)

# %% [markdown]
# The classifier, given the part of the picture that a place looks at, says the same.

# %%
worst = 0.0
for row in range(9):
    for column in range(9):
        part = scene[4 * row:4 * row + 28, 4 * column:4 * column + 28]
        alone = net.forward(data=part[np.newaxis, np.newaxis])['prob'][0]
        worst = max(worst, float(np.abs(alone - out[:, row, column]).max()))
print('the largest difference is below 1e-5:', worst < 1e-5)
assert worst < 1e-5
corners = [int(out[:, row, column].argmax()) for row in (0, 8) for column in (0, 8)]
print('digits at the corners:', corners, 'and the truth:', labels[240:244].tolist())
assert np.mean(np.array(corners) == labels[240:244]) >= 0.75
assert np.mean(net.forward_all(data=images[240:, np.newaxis] / 255)['prob'].argmax(1) == labels[240:]) >= 0.85

# %% [markdown]
# # Classification: a net that knows nine drawn things
#
# This notebook takes a trained net and classifies pictures with it. It shows how a picture becomes a net's input, how a
# batch is changed, and what the layers hold. The calls are those of pycaffe. The net is small, so it is trained here first.

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
# ## Make the net and its weights
#
# As Caffe's nets for photographs do, this one wants the channels in the order blue, green, red, numbers from 0 to 255, and
# the mean taken away.


# %%
def shapes_net(bottom, label=None):
    """The net, from a blob of pictures to probabilities, or with labels to a loss."""
    n = caffe.NetSpec()
    n.data = bottom
    if label is not None:
        n.label = label
    n.conv1 = L.Convolution(n.data, kernel_size=5, num_output=12, weight_filler={'type': 'xavier'})
    n.pool1 = L.Pooling(n.conv1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.relu1 = L.ReLU(n.pool1, in_place=True)
    n.conv2 = L.Convolution(n.relu1, kernel_size=5, num_output=24, weight_filler={'type': 'xavier'})
    n.pool2 = L.Pooling(n.conv2, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.relu2 = L.ReLU(n.pool2, in_place=True)
    n.fc3 = L.InnerProduct(n.relu2, num_output=48, weight_filler={'type': 'xavier'})
    n.relu3 = L.ReLU(n.fc3, in_place=True)
    n.fc4 = L.InnerProduct(n.relu3, num_output=len(data.NAMES), weight_filler={'type': 'xavier'})
    if label is None:
        n.prob = L.Softmax(n.fc4)
    else:
        n.loss = L.SoftmaxWithLoss(n.fc4, n.label)
    return n.to_proto()


pictures, classes = data.draw_shapes(600, seed=1)
as_stored = (pictures[:, :, :, ::-1].transpose(0, 3, 1, 2) * 255).astype(np.uint8)
mean = as_stored.mean((0, 2, 3))
source = data.write_lmdb(folder / 'shapes', as_stored, classes)
read, label = L.Data(source=source, backend=P.Data.LMDB, batch_size=32, ntop=2,
                     transform_param={'mean_value': [float(value) for value in mean], 'scale': 1 / 64})
(folder / 'train.prototxt').write_text(str(shapes_net(read, label)))
(folder / 'deploy.prototxt').write_text(str(shapes_net(L.Input(shape={'dim': [10, 3, 32, 32]}))))
(folder / 'solver.prototxt').write_text(
    f'train_net: "{folder}/train.prototxt" base_lr: 0.002 lr_policy: "fixed" type: "Adam" max_iter: 200 display: 0\n'
    f'snapshot_prefix: "{folder}/shapes" snapshot_after_train: false random_seed: 1\n')
solver = caffe.get_solver(str(folder / 'solver.prototxt'))
solver.step(200)
model_def, model_weights = str(folder / 'deploy.prototxt'), str(folder / 'shapes.caffemodel')
solver.net.save(model_weights)
print('loss after', solver.iter, 'iterations is below 0.1:', bool(solver.loss < 0.1))

# %% [markdown]
# ## Load it, and say how pictures become its input

# %%
net = caffe.Net(model_def, model_weights, caffe.TEST)
transformer = caffe.io.Transformer({'data': net.blobs['data'].data.shape})
transformer.set_transpose('data', (2, 0, 1))     # height x width x channels to channels x height x width
transformer.set_mean('data', mean)               # taken away from each channel
transformer.set_raw_scale('data', 255)           # from 0 to 1 becomes 0 to 255
transformer.set_channel_swap('data', (2, 1, 0))  # red, green, blue to blue, green, red
transformer.set_input_scale('data', 1 / 64)

# %% [markdown]
# ## Classify one picture

# %%
net.blobs['data'].reshape(1, 3, 32, 32)
unseen, truth = data.draw_shapes(90, seed=2)
image = unseen[0]
transformed = transformer.preprocess('data', image)
net.blobs['data'].data[...] = transformed
output = net.forward()
probabilities = output['prob'][0]
show.images([image, transformer.deprocess('data', transformed)], 'a picture, and what the transformer makes of its own output')
for number in probabilities.argsort()[::-1][:3]:
    print(f'{data.NAMES[number]:13} {probabilities[number]:.2f}')
print('It is a', data.NAMES[truth[0]])
assert probabilities.argmax() == truth[0]
assert np.abs(transformer.deprocess('data', transformed) - image).max() < 1e-5

# %% [markdown]
# ## Classify many, in a batch

# %%
net.blobs['data'].reshape(len(unseen), 3, 32, 32)
net.blobs['data'].data[...] = [transformer.preprocess('data', picture) for picture in unseen]
found = net.forward()['prob'].argmax(1)
accuracy = float((found == truth).mean())
print(f'{accuracy:.2f} of {len(unseen)} pictures that it has not seen are right')
assert accuracy >= 0.9

# %% [markdown]
# ## Look at blobs and params

# %%
for name, blob in net.blobs.items():
    print(f'{name:6} {blob.data.shape}')
for name, param in net.params.items():
    print(f'{name:6} {param[0].data.shape} {param[1].data.shape}')
filters = net.params['conv1'][0].data
show.images(((kernel - filters.min()) / np.ptp(filters))[::-1].transpose(1, 2, 0) for kernel in filters)
show.images(list(net.blobs['conv1'].data[0]), 'what the first layer makes of the picture', columns=12)
assert net.blobs['conv1'].data.shape == (90, 12, 28, 28)

# %% [markdown]
# ## Classifier does all of it
#
# `caffe.Classifier` resizes, crops, transforms and classifies, and takes the mean over ten crops of each picture.

# %%
classifier = caffe.Classifier(model_def, model_weights, image_dims=(36, 36), mean=mean, input_scale=1 / 64, raw_scale=255,
                              channel_swap=(2, 1, 0))
of_crops = classifier.predict(list(unseen), oversample=True)
middle = classifier.predict(list(unseen), oversample=False)
print('right by ten crops and by the middle:', *(round(float((p.argmax(1) == truth).mean()), 2) for p in (of_crops, middle)))
assert of_crops.shape == (90, len(data.NAMES)) and np.allclose(of_crops.sum(1), 1, atol=1e-4)
assert (of_crops.argmax(1) == truth).mean() >= 0.85

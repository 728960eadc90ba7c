"""Classifies pictures."""
import numpy as np

from .. import TEST
from ..net import Net
from . import io


def transformer_of(net, mean, input_scale, raw_scale, channel_swap):
    """The Transformer of a net's first input, for pictures with the channels last."""
    name = net.inputs[0]
    transformer = io.Transformer({name: net.blobs[name].shape})
    transformer.set_transpose(name, (2, 0, 1))
    for value, set_ in ((mean, transformer.set_mean), (input_scale, transformer.set_input_scale),
                        (raw_scale, transformer.set_raw_scale), (channel_swap, transformer.set_channel_swap)):
        if value is not None:
            set_(name, value)
    return transformer


class Classifier(Net):
    """A net that classifies pictures. image_dims: the size to which pictures are brought before crops are taken; else the
    net's."""

    def __init__(self, model_file, pretrained_file, image_dims=None, mean=None, input_scale=None, raw_scale=None,
                 channel_swap=None):
        super().__init__(model_file, TEST, weights=pretrained_file)
        self.transformer = transformer_of(self, mean, input_scale, raw_scale, channel_swap)
        self.crop_dims = np.array(self.blobs[self.inputs[0]].shape[2:])
        self.image_dims = self.crop_dims if image_dims is None else image_dims

    def predict(self, inputs, oversample=True):
        """The class probabilities of pictures, height x width x channels: the mean over ten crops of each, or with
        oversample=False those of the crop in the middle."""
        pictures = np.array([io.resize_image(picture, self.image_dims) for picture in inputs])
        if oversample:
            crops = io.oversample(pictures, self.crop_dims)
        else:
            top, left = ((np.array(self.image_dims) - self.crop_dims) // 2).astype(int)
            crops = pictures[:, top:top + self.crop_dims[0], left:left + self.crop_dims[1]]
        name = self.inputs[0]
        made = np.array([self.transformer.preprocess(name, crop) for crop in crops])
        predictions = self.forward_all(**{name: made})[self.outputs[0]]
        return predictions.reshape(len(predictions) // 10, 10, -1).mean(1) if oversample else predictions

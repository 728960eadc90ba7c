"""Classifies windows of pictures."""
import numpy as np

from .. import TEST
from ..net import Net
from . import io
from .classifier import transformer_of


class Detector(Net):
    """A net that classifies windows of pictures. context_pad: pixels of the net's input, on each side, that show what is around
    the window; where the picture ends, the mean is shown."""

    def __init__(self, model_file, pretrained_file, mean=None, input_scale=None, raw_scale=None, channel_swap=None,
                 context_pad=None):
        super().__init__(model_file, TEST, weights=pretrained_file)
        self.transformer = transformer_of(self, mean, input_scale, raw_scale, channel_swap)
        self.configure_crop(context_pad)

    def configure_crop(self, context_pad):
        """Sets the border, and the mean that stands for what is outside the picture."""
        self.context_pad = context_pad
        name = self.inputs[0]
        channels, height, width = self.blobs[name].shape[1:]
        self.crop_dims = np.array([height, width, channels])
        outside = np.zeros((channels, height, width), np.float32) + self.transformer.mean.get(name, 0)
        if name in self.transformer.channel_swap:
            outside = outside[np.argsort(self.transformer.channel_swap[name])]
        self.crop_mean = outside.transpose(1, 2, 0) / self.transformer.raw_scale.get(name, 1)

    def detect_windows(self, images_windows):
        """images_windows: (file, list of windows) of each picture, a window being (top, left, bottom, right). Returns a list of
        dicts with filename, window and prediction."""
        found, crops = [], []
        for file, windows in images_windows:
            picture = io.load_image(file)
            for window in windows:
                found.append({'window': window, 'filename': file})
                crops.append(self.transformer.preprocess(self.inputs[0], self.crop(picture, np.asarray(window))))
        predictions = self.forward_all(**{self.inputs[0]: np.array(crops)})[self.outputs[0]]
        for entry, prediction in zip(found, predictions):
            entry['prediction'] = prediction
        return found

    def detect_selective_search(self, image_fnames):
        """detect_windows() on what the package selective_search_ijcv_with_python proposes."""
        import os
        import selective_search_ijcv_with_python as selective_search
        files = [os.path.abspath(name) for name in image_fnames]
        return self.detect_windows(zip(files, selective_search.get_windows(files, cmd='selective_search_rcnn')))

    def crop(self, im, window):
        """Cuts a window out of a picture, with its context."""
        if not self.context_pad:
            return im[window[0]:window[2], window[1]:window[3]]
        side = self.crop_dims[1]
        half = (window[2:] - window[:2] + 1) / 2.0
        middle = window[:2] + half
        grown = half * side / (side - 2.0 * self.context_pad)
        low, high = np.round(middle - grown).astype(int), np.round(middle + grown).astype(int)
        scale = side / (high - low + 1)
        inside = np.clip(low, 0, im.shape[:2]), np.clip(high, 0, im.shape[:2])
        before = np.round(np.maximum(-low, 0) * scale).astype(int)
        size = np.round((inside[1] - inside[0] + 1) * scale).astype(int)
        size = np.minimum(size, side - before)
        seen = im[inside[0][0]:inside[1][0], inside[0][1]:inside[1][1]]
        made = np.array(self.crop_mean, np.float32)
        made[before[0]:before[0] + size[0], before[1]:before[1] + size[1]] = io.resize_image(seen, size)
        return made

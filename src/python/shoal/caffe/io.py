"""Pictures and messages to arrays and back, and what makes a net's input of a picture."""
import numpy as np

from .. import Error
from ..data import read_image
from .proto import caffe_pb2


def blobproto_to_array(blob, return_diff=False):
    """The numbers of a BlobProto, or their gradients."""
    data = np.array(blob.diff if return_diff else blob.data)
    if any(blob.HasField(name) for name in ('num', 'channels', 'height', 'width')):
        return data.reshape(blob.num, blob.channels, blob.height, blob.width)
    return data.reshape(blob.shape.dim)


def array_to_blobproto(arr, diff=None):
    """A BlobProto of an array, and of an array of gradients of the same shape."""
    arr = np.asarray(arr)
    if diff is not None and np.shape(diff) != arr.shape:
        raise Error(f'diff has the shape {np.shape(diff)}, the numbers have {arr.shape}')
    blob = caffe_pb2.BlobProto()
    blob.shape.dim.extend(arr.shape)
    blob.data.extend(arr.astype(float).flat)
    if diff is not None:
        blob.diff.extend(np.asarray(diff).astype(float).flat)
    return blob


def arraylist_to_blobprotovector_str(arraylist):
    """The bytes of a BlobProtoVector of the arrays."""
    return caffe_pb2.BlobProtoVector(blobs=[array_to_blobproto(array) for array in arraylist]).SerializeToString()


def blobprotovector_str_to_arraylist(data):
    """The arrays of a BlobProtoVector's bytes."""
    return [blobproto_to_array(blob) for blob in caffe_pb2.BlobProtoVector.FromString(data).blobs]


def array_to_datum(arr, label=None):
    """A Datum of an array of three axes: bytes if it is uint8, else floats."""
    if np.ndim(arr) != 3:
        raise Error(f'a Datum has three axes, channels x height x width; the array has the shape {np.shape(arr)}')
    datum = caffe_pb2.Datum()
    datum.channels, datum.height, datum.width = arr.shape
    if arr.dtype == np.uint8:
        datum.data = arr.tobytes()
    else:
        datum.float_data.extend(arr.astype(float).flat)
    if label is not None:
        datum.label = label
    return datum


def datum_to_array(datum):
    """The numbers of a Datum, whose picture is decoded if it is encoded: channels x height x width."""
    if datum.encoded:
        from .. import _shoal
        return np.ascontiguousarray(_shoal.decode_image(datum.data, True).transpose(2, 0, 1))
    shape = datum.channels, datum.height, datum.width
    if len(datum.data):
        return np.frombuffer(datum.data, np.uint8).reshape(shape).copy()
    return np.array(datum.float_data, float).reshape(shape)


class Transformer:
    """Makes the input of a net of a picture: resized, axes in order, channels in order, times raw_scale, less mean, times
    input_scale. inputs: the shape of each input by name."""

    def __init__(self, inputs):
        self.inputs = {name: tuple(shape) for name, shape in inputs.items()}
        self.transpose, self.channel_swap, self.raw_scale, self.mean, self.input_scale = {}, {}, {}, {}, {}

    def _shape(self, in_):
        if in_ not in self.inputs:
            raise Error(f"'{in_}' is none of the inputs, {', '.join(self.inputs)}")
        return self.inputs[in_]

    def preprocess(self, in_, data):
        """height x width x channels to channels x height x width."""
        shape = self._shape(in_)
        made = np.array(data, np.float32)
        if made.shape[:2] != shape[2:]:
            made = resize_image(made, shape[2:])
        if in_ in self.transpose:
            made = made.transpose(self.transpose[in_])
        if in_ in self.channel_swap:
            made = made[list(self.channel_swap[in_]), :, :]
        made = made * np.float32(self.raw_scale.get(in_, 1))
        if in_ in self.mean:
            made = made - self.mean[in_]
        return (made * np.float32(self.input_scale.get(in_, 1))).astype(np.float32)

    def deprocess(self, in_, data):
        """Undoes preprocess(), but for the size."""
        self._shape(in_)
        made = np.squeeze(np.array(data, np.float32)) / self.input_scale.get(in_, 1) + self.mean.get(in_, 0)
        made = made / self.raw_scale.get(in_, 1)
        if in_ in self.channel_swap:
            made = made[np.argsort(self.channel_swap[in_]), :, :]
        if in_ in self.transpose:
            made = made.transpose(np.argsort(self.transpose[in_]))
        return made

    def set_transpose(self, in_, order):
        """order: of the axes, (2, 0, 1) for height x width x channels."""
        if len(order) != len(self._shape(in_)) - 1:
            raise Error(f"the order {tuple(order)} has not as many axes as an item of '{in_}': {self.inputs[in_][1:]}")
        self.transpose[in_] = tuple(order)

    def set_channel_swap(self, in_, order):
        """order: of the channels, (2, 1, 0) for red, green, blue to blue, green, red."""
        if len(order) != self._shape(in_)[1]:
            raise Error(f"the order {tuple(order)} has not as many channels as '{in_}': {self.inputs[in_][1]}")
        self.channel_swap[in_] = tuple(order)

    def set_raw_scale(self, in_, scale):
        """scale: applied before the mean, 255 for pictures from 0 to 1."""
        self._shape(in_)
        self.raw_scale[in_] = scale

    def set_input_scale(self, in_, scale):
        """scale: applied after the mean."""
        self._shape(in_)
        self.input_scale[in_] = scale

    def set_mean(self, in_, mean):
        """mean: a number a channel, or a picture channels x height x width, which is resized."""
        shape, mean = self._shape(in_), np.asarray(mean)
        if mean.ndim == 1:
            if mean.shape[0] not in (1, shape[1]):
                raise Error(f"the mean has {mean.shape[0]} channels, and '{in_}' has {shape[1]}")
            mean = mean[:, np.newaxis, np.newaxis]
        elif mean.ndim not in (2, 3) or (mean.ndim == 3 and mean.shape[0] not in (1, shape[1])):
            raise Error(f"the mean has the shape {mean.shape}; items of '{in_}' have {shape[1:]}")
        elif mean.shape[-2:] != shape[2:]:
            picture = mean.reshape((-1,) + mean.shape[-2:]).transpose(1, 2, 0)
            mean = resize_image(picture, shape[2:]).transpose(2, 0, 1)
        self.mean[in_] = mean


def load_image(filename, color=True):
    """A picture as float32 from 0 to 1: height x width x 3, red, green, blue, or with color=False height x width x 1."""
    pixels = read_image(filename, as_stored=True).astype(np.float32) / np.float32(255)
    pixels = pixels[:, :, 2::-1] if pixels.shape[2] >= 3 else pixels[:, :, :1]
    if color:
        return np.ascontiguousarray(np.broadcast_to(pixels, pixels.shape[:2] + (3,)))
    if pixels.shape[2] == 1:
        return pixels
    return (pixels @ np.array([0.2125, 0.7154, 0.0721], np.float32))[:, :, np.newaxis]


def _places(size, new_size):
    """For each of new_size places, the two neighbours among size places, and the weight of the second."""
    at = np.clip((np.arange(new_size) + 0.5) * (size / new_size) - 0.5, 0, size - 1)
    low = np.floor(at).astype(int)
    return low, np.minimum(low + 1, size - 1), (at - low).astype(np.float32)


def resize_image(im, new_dims, interp_order=1):
    """A picture, height x width x channels, resized to new_dims, (height, width). interp_order: 1 bilinear, 0 nearest."""
    if interp_order not in (0, 1):
        raise Error(f'interp_order is {interp_order}; 0 (nearest) and 1 (bilinear) are there')
    im = np.asarray(im, np.float32)
    top, bottom, down = _places(im.shape[0], int(new_dims[0]))
    left, right, along = _places(im.shape[1], int(new_dims[1]))
    if interp_order == 0:
        return im[np.where(down < 0.5, top, bottom)][:, np.where(along < 0.5, left, right)]
    down, along = down[:, np.newaxis, np.newaxis], along[np.newaxis, :, np.newaxis]
    rows = im[top] * (1 - down) + im[bottom] * down
    return rows[:, left] * (1 - along) + rows[:, right] * along


def oversample(images, crop_dims):
    """Ten crops of each picture: its corners and its middle, then these mirrored."""
    height, width = (int(size) for size in crop_dims)
    whole = np.shape(images[0])
    low, high = (0, 0), (whole[0] - height, whole[1] - width)
    if min(high) < 0:
        raise Error(f'crops of {height} x {width} do not lie in pictures of {whole[0]} x {whole[1]}')
    middle = int(whole[0] / 2.0 - height / 2.0), int(whole[1] / 2.0 - width / 2.0)
    places = [low, (low[0], high[1]), (high[0], low[1]), high, middle]
    crops = []
    for image in images:
        five = [image[top:top + height, left:left + width] for top, left in places]
        crops += five + [crop[:, ::-1] for crop in five]
    return np.array(crops, np.float32)

"""Records of databases, and pictures."""
import os

from . import _shoal


class Records:
    """The records of an LMDB, a LevelDB or a datumfile, in order: for key, datum in Records(path). Keys are bytes, datums
    messages of shoal.caffe.proto.caffe_pb2; with raw=True they are bytes too."""

    def __init__(self, path, backend='any', raw=False):
        self._arguments = (os.fspath(path), backend)
        self._source = _shoal.Records(*self._arguments)
        self.raw = raw

    @property
    def path(self):
        return self._source.path

    def __len__(self):
        return self._source.count()

    def _record(self, source):
        key, value = source.next()
        if self.raw:
            return key, value
        from .caffe.proto.caffe_pb2 import Datum
        return key, Datum.FromString(value)

    def __iter__(self):
        source = _shoal.Records(*self._arguments)
        while True:
            try:
                yield self._record(source)
            except StopIteration:
                return

    def __getitem__(self, index):
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f'record {index} of {self.path}, which has {count}')
        self._source.seek(index % count)
        return self._record(self._source)


class RecordWriter:
    """Writes records, which appear under the path all together at the end of a `with`, or not at all after an exception.
    mode: new, truncate or append (datumfile alone)."""

    def __init__(self, path, backend='lmdb', mode='new'):
        self._writer = _shoal.RecordWriter(os.fspath(path), backend, mode)

    def put(self, key, datum):
        """`key`: bytes or str; `datum`: a Datum or bytes."""
        value = datum.SerializeToString() if hasattr(datum, 'SerializeToString') else datum
        self._writer.put(key.encode() if isinstance(key, str) else key, value)

    def __enter__(self):
        return self

    def __exit__(self, error, *_):
        if error is None:
            self._writer.finish()
        else:
            self._writer.discard()


def read_image(path, as_stored=False):
    """The picture in a file: height x width x channels of uint8, blue, green, red. as_stored: with the channels that it has."""
    return _shoal.read_image(os.fspath(path), as_stored)

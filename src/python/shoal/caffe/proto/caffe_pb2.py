"""Caffe's messages, of Shoal's schemas, whose fields from 1000 on are Shoal's. They are in a pool of descriptors of their own, so
that another caffe.proto in the program does no harm, and no version of protobuf is needed but the one that is there."""
from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal import enum_type_wrapper

_pool = descriptor_pool.DescriptorPool()


def _class_of(descriptor):
    if hasattr(message_factory, 'GetMessageClass'):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(_pool).GetPrototype(descriptor)


def _names_of(descriptor, prefix):
    """Descriptors under the names that protoc used to give them: _LAYERPARAMETER."""
    names = {prefix + descriptor.name.upper(): descriptor}
    for nested in descriptor.nested_types:
        names.update(_names_of(nested, prefix + descriptor.name.upper() + '_'))
    for enum in descriptor.enum_types:
        names[prefix + descriptor.name.upper() + '_' + enum.name.upper()] = enum
    return names


def _load():
    names = {}
    files = descriptor_pb2.FileDescriptorSet.FromString((Path(__file__).parent / 'caffe.protos').read_bytes())
    for file in files.file:
        _pool.AddSerializedFile(file.SerializeToString())
    for file in files.file:
        descriptor = _pool.FindFileByName(file.name)
        for message in descriptor.message_types_by_name.values():
            names[message.name] = _class_of(message)
            names.update(_names_of(message, '_'))
        for enum in descriptor.enum_types_by_name.values():
            names[enum.name] = enum_type_wrapper.EnumTypeWrapper(enum)
            names['_' + enum.name.upper()] = enum
            names.update((value.name, value.number) for value in enum.values)
    return names


globals().update(_load())

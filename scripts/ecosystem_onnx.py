#!/usr/bin/env python3
"""What scripts/ecosystem_test.py does with ONNX files and arrays, in its virtual environment.

    ecosystem_onnx.py compare FOLDER           NAME.onnx on NAME.<run>.in.npz against NAME.<run>.want.npz
    ecosystem_onnx.py external MODEL           where a model's weights are
    ecosystem_onnx.py quantise MODEL           the model, quantised with MODEL.ranges.json, against itself
    ecosystem_onnx.py arrays NPZ SAFETENSORS   the same arrays in both
"""
import pathlib
import sys

import numpy
import onnx
import onnxruntime

MOST = 1e-4  # difference, of the output's largest number


def difference(got, want):
    """The largest difference, of the largest number; shapes must agree, and where numbers are NaN."""
    assert got.shape == want.shape, f'shape {got.shape} in onnxruntime, {want.shape} in Shoal'
    got, want = got.astype('f8'), want.astype('f8')
    assert (numpy.isnan(got) == numpy.isnan(want)).all(), 'NaN on one side alone'
    apart = numpy.abs(numpy.nan_to_num(got - want)).max(initial=0)
    scale = numpy.abs(numpy.nan_to_num(want)).max(initial=0)
    return apart / scale if scale else float(apart > 0)


def compare(folder):
    models, runs, worst = 0, 0, (0, '')
    for path in sorted(pathlib.Path(folder).glob('*.onnx')):
        onnx.checker.check_model(onnx.load(path), full_check=True)
        session = onnxruntime.InferenceSession(path)
        models += 1
        for wanted in sorted(path.parent.glob(f'{path.stem}.*.want.npz')):
            want = numpy.load(wanted)
            inputs = dict(numpy.load(str(wanted).replace('.want.', '.in.')))
            for name, got in zip(want.files, session.run(want.files, inputs)):
                apart = difference(got, want[name])
                assert apart <= MOST, f'{wanted.name}, {name}: {apart}'
                worst = max(worst, (apart, f'{wanted.name} {name}'))
            runs += 1
    assert models and runs >= models, f'{models} models, {runs} runs'
    print(f'{models} models, {runs} runs; the largest difference is {worst[0]:.1e}, of {worst[1]}')


def external(path):
    """The weights of a model lie beside it, each at a multiple of 4096 bytes."""
    tensors = [t for t in onnx.load(path, load_external_data=False).graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL]
    offsets = [int(entry.value) for tensor in tensors for entry in tensor.external_data if entry.key == 'offset']
    assert offsets and not any(offset % 4096 for offset in offsets), offsets
    onnx.checker.check_model(path, full_check=True)
    print(f'{len(offsets)} tensors beside the model')


def quantise(path):
    """Quantises a model of digits with the ranges beside it, and compares what both say of random digits."""
    from onnxruntime.quantization import QuantType, quantize_static
    # Without VNNI sums of two products are cut at 16 bits, unless weights have seven.
    has_vnni = 'vnni' in pathlib.Path('/proc/cpuinfo').read_text()
    quantize_static(path, path + '.int8', None, calibration_cache_path=path + '.ranges.json', activation_type=QuantType.QUInt8,
                    weight_type=QuantType.QInt8, reduce_range=not has_vnni)
    kinds = [operation.op_type for operation in onnx.load(path + '.int8').graph.node]
    assert kinds.count('QuantizeLinear') >= 4, kinds
    random = numpy.random.default_rng(1)
    images = 255 * random.random((64, 1, 28, 28), 'f4') ** 4
    want, got = (onnxruntime.InferenceSession(name).run(['prob'], {'data': images})[0] for name in (path, path + '.int8'))
    apart = float(numpy.abs(want - got).max())
    assert 0 < apart < 0.05, f'probabilities differ by {apart}'
    print(f'{kinds.count("QuantizeLinear")} values quantised; probabilities differ by {apart:.3f} at most')


def arrays(npz, tensors):
    from safetensors.numpy import load_file
    other = load_file(tensors)
    own = numpy.load(npz)
    assert sorted(own.files) == sorted(other) and len(other) > 60, other.keys()
    for name in own.files:
        assert own[name].shape == other[name].shape and own[name].any() and (own[name] == other[name]).all(), name
    print(f'{len(other)} arrays')


if __name__ == '__main__':
    globals()[sys.argv[1]](*sys.argv[2:])

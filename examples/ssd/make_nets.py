#!/usr/bin/env python3
"""Writes the nets of a MobileNet-SSD: FOLDER/train.prototxt, test.prototxt, deploy.prototxt and solver.prototxt.

The layers are those of MobileNet-SSD as it is commonly published (Howard et al., "MobileNets", 2017; Liu et al., "SSD", 2016): 13
pairs of depthwise and 1 x 1 convolutions, four more pairs, and two heads on each of six maps. --width makes all of it narrower, and
prior boxes go with --input. With --fine the heads begin at conv5, whose places are 8 pixels apart, and the last pair is left out: with
an input of 96 pixels conv11 has 6 x 6 places only, too few for most boxes to be near a prior."""
import argparse
from pathlib import Path

# (name, outputs, stride of the depthwise convolution)
PAIRS = [('conv1', 64, 1), ('conv2', 128, 2), ('conv3', 128, 1), ('conv4', 256, 2), ('conv5', 256, 1), ('conv6', 512, 2), ('conv7', 512, 1),
         ('conv8', 512, 1), ('conv9', 512, 1), ('conv10', 512, 1), ('conv11', 512, 1), ('conv12', 1024, 2), ('conv13', 1024, 1)]
# (name, outputs of the 1 x 1 convolution, of the 3 x 3 one, which halves the map)
MORE = [('conv14', 256, 512), ('conv15', 128, 256), ('conv16', 128, 256), ('conv17', 64, 128)]
# (map, smallest box and next size of it as parts of the input, aspect ratios); the first has no next size
HEADS = [('conv11', .2, None, [2]), ('conv13', .35, .5, [2, 3]), ('conv14_2', .5, .65, [2, 3]), ('conv15_2', .65, .8, [2, 3]),
         ('conv16_2', .8, .95, [2, 3]), ('conv17_2', .95, 1, [2, 3])]
FINE_MAPS = ['conv5', 'conv11', 'conv13', 'conv14_2', 'conv15_2', 'conv16_2']


class Net:
    def __init__(self, options, learns):
        self.options, self.learns, self.text, self.bottom = options, learns, '', 'data'

    def wide(self, outputs):
        return max(8, int(outputs * self.options.width + .5) // 8 * 8)

    def layer(self, name, kind, bottoms, tops, body=''):
        lines = [f'  name: "{name}"', f'  type: "{kind}"'] + [f'  bottom: "{b}"' for b in bottoms] + [f'  top: "{t}"' for t in tops]
        self.text += 'layer {\n' + '\n'.join(lines + ['  ' + line for line in body.strip().split('\n') if line.strip()]) + '\n}\n'

    def convolution(self, name, outputs, kernel, stride=1, group=1, bias=False, bottom=None):
        """Without a ReLU; `bottom`: a head, which does not become the next layer's bottom."""
        params = 'param { lr_mult: 1 decay_mult: 1 }\n' + ('param { lr_mult: 2 decay_mult: 0 }\n' if bias else '')
        fields = [f'num_output: {outputs}', f'kernel_size: {kernel}']
        fields += [] if bias else ['bias_term: false']
        fields += [f'pad: {kernel // 2}'] if kernel > 1 else []
        fields += [f'stride: {stride}'] if stride > 1 else []
        fields += [f'group: {group}'] if group > 1 else []
        body = f'convolution_param {{ {" ".join(fields)} weight_filler {{ type: "msra" }} }}'
        self.layer(name, 'Convolution', [bottom or self.bottom], [name], (params if self.learns else '') + body)
        if not bottom:
            self.bottom = name

    def normalized(self, name, outputs, kernel, stride=1, group=1):
        self.convolution(name, outputs, kernel, stride, group)
        self.layer(name + '/bn', 'BatchNorm', [name], [name], 'batch_norm_param { moving_average_fraction: 0.98 }' if self.learns else '')
        self.layer(name + '/scale', 'Scale', [name], [name], 'scale_param { bias_term: true }')
        self.layer(name + '/relu', 'ReLU', [name], [name])

    def body(self):
        channels = self.wide(32)
        self.normalized('conv0', channels, 3, 2)
        for name, outputs, stride in PAIRS:
            self.normalized(name + '/dw', channels, 3, stride, channels)
            channels = self.wide(outputs)
            self.normalized(name, channels, 1)
        for name, narrow, outputs in MORE[:-1] if self.options.fine else MORE:
            self.normalized(name + '_1', self.wide(narrow), 1)
            channels = self.wide(outputs)
            self.normalized(name + '_2', channels, 3, 2)

    def heads(self):
        size, classes = self.options.input, self.options.classes
        maps = FINE_MAPS if self.options.fine else [head[0] for head in HEADS]
        for name, (_, small, large, ratios) in zip(maps, HEADS):
            boxes = 1 + 2 * len(ratios) + (large is not None)
            for part, outputs in (('loc', 4 * boxes), ('conf', classes * boxes)):
                head = f'{name}_mbox_{part}'
                self.convolution(head, outputs, 1, bias=True, bottom=name)
                self.layer(head + '_perm', 'Permute', [head], [head + '_perm'],
                           'permute_param { order: 0 order: 2 order: 3 order: 1 }')
                self.layer(head + '_flat', 'Flatten', [head + '_perm'], [head + '_flat'], 'flatten_param { axis: 1 }')
            fields = [f'min_size: {round(small * size)}'] + ([f'max_size: {round(large * size)}'] if large else [])
            fields += [f'aspect_ratio: {r}' for r in ratios] + ['flip: true', 'clip: false']
            fields += [f'variance: {v}' for v in (.1, .1, .2, .2)] + ['offset: 0.5']
            self.layer(f'{name}_mbox_priorbox', 'PriorBox', [name, 'data'], [f'{name}_mbox_priorbox'],
                       f'prior_box_param {{ {" ".join(fields)} }}')
        for part, axis in (('loc', 1), ('conf', 1), ('priorbox', 2)):
            ending = '' if part == 'priorbox' else '_flat'
            self.layer('mbox_' + part, 'Concat', [f'{name}_mbox_{part}{ending}' for name in maps], ['mbox_' + part],
                       f'concat_param {{ axis: {axis} }}')

    def loss(self):
        self.layer('mbox_loss', 'MultiBoxLoss', ['mbox_loc', 'mbox_conf', 'mbox_priorbox', 'label'], ['mbox_loss'], f'''
propagate_down: true
propagate_down: true
propagate_down: false
propagate_down: false
loss_param {{ normalization: VALID }}
multibox_loss_param {{
  loc_loss_type: SMOOTH_L1 conf_loss_type: SOFTMAX loc_weight: 1 num_classes: {self.options.classes} share_location: true
  match_type: PER_PREDICTION overlap_threshold: 0.5 use_prior_for_matching: true background_label_id: 0
  use_difficult_gt: true neg_pos_ratio: 3 neg_overlap: 0.5 code_type: CENTER_SIZE
  ignore_cross_boundary_bbox: false mining_type: MAX_NEGATIVE
}}''')

    def output(self, save=''):
        classes = self.options.classes
        self.layer('mbox_conf_reshape', 'Reshape', ['mbox_conf'], ['mbox_conf_reshape'],
                   f'reshape_param {{ shape {{ dim: 0 dim: -1 dim: {classes} }} }}')
        self.layer('mbox_conf_softmax', 'Softmax', ['mbox_conf_reshape'], ['mbox_conf_softmax'], 'softmax_param { axis: 2 }')
        self.layer('mbox_conf_flatten', 'Flatten', ['mbox_conf_softmax'], ['mbox_conf_flatten'], 'flatten_param { axis: 1 }')
        self.layer('detection_out', 'DetectionOutput', ['mbox_loc', 'mbox_conf_flatten', 'mbox_priorbox'], ['detection_out'], f'''
include {{ phase: TEST }}
detection_output_param {{
  num_classes: {classes} share_location: true background_label_id: 0 nms_param {{ nms_threshold: 0.45 top_k: 100 }}
  {save}code_type: CENTER_SIZE keep_top_k: 100 confidence_threshold: 0.01
}}''')


def transform(options, training):
    size = options.input
    lines = ['scale: 0.007843 mean_value: 127.5 mean_value: 127.5 mean_value: 127.5',
             f'resize_param {{ prob: 1 resize_mode: WARP height: {size} width: {size}' +
             (' interp_mode: LINEAR interp_mode: AREA interp_mode: NEAREST' if training else '') + ' }']
    if training:
        lines += ['mirror: true emit_constraint { emit_type: CENTER }',
                  'distort_param { brightness_prob: 0.5 brightness_delta: 32 contrast_prob: 0.5 contrast_lower: 0.5 contrast_upper: 1.5',
                  '  hue_prob: 0.5 hue_delta: 18 saturation_prob: 0.5 saturation_lower: 0.5 saturation_upper: 1.5 }',
                  'expand_param { prob: 0.3 max_expand_ratio: 1.5 }']
    return 'transform_param {\n  ' + '\n  '.join(lines) + '\n}'


def samplers():
    text = 'batch_sampler { max_sample: 1 max_trials: 1 }\n'
    for overlap in (.3, .5, .7, .9):
        text += ('  batch_sampler { sampler { min_scale: 0.3 max_scale: 1 min_aspect_ratio: 0.5 max_aspect_ratio: 2 }\n'
                 f'    sample_constraint {{ min_jaccard_overlap: {overlap} }} max_sample: 1 max_trials: 50 }}\n')
    return text


def data_layer(net, options, training):
    phase, source, batch = ('TRAIN', options.train, options.batch) if training else ('TEST', options.test, options.test_batch)
    net.layer('data', 'AnnotatedData', [], ['data', 'label'], f'''
include {{ phase: {phase} }}
{transform(options, training)}
data_param {{ source: "{source}" batch_size: {batch} backend: LMDB{" shuffle: true" if training else ""} }}
annotated_data_param {{
  {samplers() if training else ""}  label_map_file: "{options.label_map}"
}}''')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('folder', type=Path)
    parser.add_argument('--input', type=int, default=300, help='height and width of the input')
    parser.add_argument('--width', type=float, default=1, help='part of the channels that stay')
    parser.add_argument('--fine', action='store_true', help='heads one map earlier, for inputs below 200 pixels')
    parser.add_argument('--classes', type=int, default=21, help='classes, the background included')
    parser.add_argument('--train', default='', help='database of AnnotatedDatums to train on')
    parser.add_argument('--test', default='', help='database to test on')
    parser.add_argument('--label-map', default='', help='label map')
    parser.add_argument('--name-size', default='', help='name_size_file of the test set: detections are saved too')
    parser.add_argument('--batch', type=int, default=24)
    parser.add_argument('--test-batch', type=int, default=8)
    parser.add_argument('--test-images', type=int, default=4952)
    parser.add_argument('--iterations', type=int, default=120000)
    parser.add_argument('--rate', type=float, default=0.0005)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)

    train = Net(options, learns=True)
    train.text = 'name: "MobileNet-SSD"\n'
    data_layer(train, options, training=True)
    train.body(), train.heads(), train.loss()
    (options.folder / 'train.prototxt').write_text(train.text)

    test = Net(options, learns=False)
    test.text = 'name: "MobileNet-SSD_test"\n'
    data_layer(test, options, training=False)
    save = ''
    if options.name_size:
        save = (f'save_output_param {{ output_directory: "{options.folder}/found" output_name_prefix: "found_" output_format: "VOC"\n'
                f'    label_map_file: "{options.label_map}" name_size_file: "{options.name_size}" num_test_image: {options.test_images} }}\n  ')
    test.body(), test.heads(), test.output(save)
    test.layer('detection_eval', 'DetectionEvaluate', ['detection_out', 'label'], ['detection_eval'], f'''
include {{ phase: TEST }}
detection_evaluate_param {{ num_classes: {options.classes} background_label_id: 0 overlap_threshold: 0.5 evaluate_difficult_gt: false }}''')
    (options.folder / 'test.prototxt').write_text(test.text)

    deploy = Net(options, learns=False)
    deploy.text = (f'name: "MobileNet-SSD"\ninput: "data"\ninput_shape {{ dim: 1 dim: 3 dim: {options.input} dim: {options.input} }}\n')
    deploy.body(), deploy.heads(), deploy.output()
    (options.folder / 'deploy.prototxt').write_text(deploy.text)

    (options.folder / 'solver.prototxt').write_text(f'''train_net: "{options.folder}/train.prototxt"
test_net: "{options.folder}/test.prototxt"
test_iter: {-(-options.test_images // options.test_batch)}
test_interval: {max(options.iterations // 4, 1)}
test_initialization: false
eval_type: "detection"
ap_version: "11point"
show_per_class_result: true
base_lr: {options.rate}
lr_policy: "multistep"
gamma: 0.5
stepvalue: {options.iterations * 2 // 3}
stepvalue: {options.iterations * 5 // 6}
type: "Adam"
weight_decay: 0.00005
display: {max(options.iterations // 20, 1)}
average_loss: 10
max_iter: {options.iterations}
snapshot: 0
snapshot_after_train: true
snapshot_prefix: "{options.folder}/mobilenet_ssd"
random_seed: 1
''')


if __name__ == '__main__':
    main()

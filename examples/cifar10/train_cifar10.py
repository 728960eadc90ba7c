#!/usr/bin/env python3
"""Takes the command lines of MXNet-G's train_cifar10.py: inception-bn-28-small and resnet-N on CIFAR-10, by its four schemes.

  scripts/launch.py -n 4 -s 4 -i eth1 --launcher ssh -H hosts \\
    python3 examples/cifar10/train_cifar10.py --batch-size 45 --lr 0.1 --lr-factor 0.94 --num-epochs 1 --kv-store dist_gsync --data-allocator 1

Run examples/cifar10/create_cifar10.sh first. Further flags are those of `train`. The files groups and data_sharding of the folder where it
starts are taken, as there."""
import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / 'scripts'))
import cifar10_nets  # noqa: E402
from seed_train import ROOT, note, train, workers_of, write_solver  # noqa: E402

# Flags that say nothing here, and why.
IDLE = {'data_dir': 'the data is examples/cifar10/cifar10_train_lmdb (create_cifar10.sh)', 'workspace': 'kernels take what they need',
        'aug_level': 'pictures are cut and mirrored', 'memonger': 'memory is planned', 'bn_mom': 'it is moving_average_fraction in the net',
        'clip_gradient': "clip_gradients of a solver limits the norm, not each number", 'log_dir': 'the log is the standard error',
        'num_classes': 'the net has 10', 'image_shape': 'the net takes 3 x 28 x 28'}


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument('--network', default='inception-bn-28-small', help='inception-bn-28-small, resnet or resnet-N')
    parser.add_argument('--num-layers', '--depth', type=int, default=20, help='N of resnet')
    parser.add_argument('--batch-size', type=int, default=128, help="of a worker")
    parser.add_argument('--lr', type=float, default=0.05)
    parser.add_argument('--lr-factor', type=float, default=1)
    parser.add_argument('--lr-factor-epoch', type=float, default=1)
    parser.add_argument('--num-epochs', '--num-epoch', type=int, default=20)
    parser.add_argument('--num-examples', type=int, default=50000)
    parser.add_argument('--mom', type=float, default=0.9)
    parser.add_argument('--wd', type=float, default=1e-5)
    parser.add_argument('--frequent', '--disp-batches', type=int, default=50)
    parser.add_argument('--gpus', help='as --gpu of train')
    parser.add_argument('--kv-store', default='local', help='local, device, dist_sync, dist_async, dist_ssync or dist_gsync')
    parser.add_argument('--staleness', type=int)
    parser.add_argument('--data-allocator', type=int, choices=(0, 1), default=0)
    parser.add_argument('--savemodel', action='store_true')
    parser.add_argument('--retrain', action='store_true')
    parser.add_argument('--model-load-epoch', '--load-epoch', type=int, default=0)
    parser.add_argument('--model-prefix', default='examples/cifar10/mxnetg')
    for name in IDLE:
        parser.add_argument('--' + name.replace('_', '-'), help=argparse.SUPPRESS)
    return parser.parse_known_args()


def net_of(args):
    name = f'resnet-{args.num_layers}' if args.network == 'resnet' else args.network
    kept = {'inception-bn-28-small': 'cifar10_inception_bn', 'resnet-20': 'cifar10_resnet20'}.get(name)
    if kept:
        return f'models/{kept}/train_val.prototxt'
    if not name.startswith('resnet-') or not name[7:].isdigit():
        sys.exit(f'train_cifar10.py: --network {args.network}: it is inception-bn-28-small, or resnet with --num-layers N')
    path = ROOT / 'build' / 'guides' / f'{name}.prototxt'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(cifar10_nets.resnet(int(name[7:])))
    return str(path.relative_to(ROOT))


def words_of(args, rest, here):
    """The flags for train."""
    words = [f'--batch={args.batch_size}']
    if args.kv_store not in ('local', 'device'):
        words.append(f'--kv_store={args.kv_store}')
    if args.kv_store == 'dist_ssync':
        words.append(f'--staleness={args.staleness or 0}')
    if args.kv_store == 'dist_gsync':
        groups = here / 'groups'
        if groups.exists():
            words.append(f'--groups_file={groups}')
        elif not any(word.startswith(('--groups', '--group_by')) for word in rest):
            note('there is no file groups here: workers are grouped by their measured speeds')
            words.append('--group_by=speed')
    if args.data_allocator and (here / 'data_sharding').exists():
        words += [f'--data_sharding={here / "data_sharding"}', '--share_by=WEIGHT']
    elif args.data_allocator:
        note('--data-allocator 1: there is no file data_sharding here; groups by speed bring shares along')
    if args.gpus:
        words.append(f'--gpu={args.gpus}')
    if args.retrain or args.model_load_epoch:
        words.append('--snapshot=auto')
    return words + rest


def main():
    args, rest = read_arguments()
    here = Path.cwd()
    for name, why in IDLE.items():
        if getattr(args, name) is not None:
            note(f'--{name.replace("_", "-")} has no effect: {why}')
    epoch = max(1, args.num_examples // (args.batch_size * workers_of(rest)))
    steps = args.lr_factor != 1
    solver = write_solver('train_cifar10', [
        ('net', f'"{net_of(args)}"'), ('test_iter', 100), ('test_interval', epoch), ('base_lr', args.lr), ('momentum', args.mom),
        ('weight_decay', args.wd), ('lr_policy', '"step"' if steps else '"fixed"'), ('gamma', args.lr_factor if steps else None),
        ('stepsize', max(1, round(args.lr_factor_epoch * epoch)) if steps else None), ('display', args.frequent),
        ('max_iter', epoch * args.num_epochs), ('snapshot', epoch if args.savemodel else None), ('snapshot_prefix', f'"{args.model_prefix}"')])
    train([f'--solver={solver}', *words_of(args, rest, here)])


if __name__ == '__main__':
    main()

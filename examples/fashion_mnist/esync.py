#!/usr/bin/env python3
"""Takes the command lines of ESync's main.py, on Fashion-MNIST: one process of a job whose others its launcher, or DMLC_ variables, name.

  scripts/launch.py --local=4 -- python3 examples/fashion_mnist/esync.py -m esync -n resnet18-v1 -g 0 -e 100

Run examples/fashion_mnist/create_fashion_mnist.sh first. Further flags are those of `train`. -ip and -port are of ESync's state server,
in whose place process 0 writes a file (--pace_json); the port on which a process listens is --port alone."""
import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / 'scripts'))
from seed_train import note, shared_net, tools, train, write_solver  # noqa: E402

NETS = {'alexnet': 'fashion_alexnet', 'resnet18-v1': 'fashion_resnet18', 'resnet50-v1': 'fashion_resnet50', 'resnet50-v2': 'fashion_resnet50_v2',
        'mobilenet-v1': 'fashion_mobilenet', 'mobilenet-v2': 'fashion_mobilenet_v2', 'inception-v3': 'fashion_inception_v3'}
DATA = 'examples/fashion_mnist/fashion_mnist_train_lmdb'


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument('-l', '--learning-rate', type=float, default=5e-4, help='of the sum of a batch, as there')
    parser.add_argument('-ll', '--local-lr', type=float, help='default: -l')
    parser.add_argument('-gl', '--global-lr', type=float, default=1.0)
    parser.add_argument('-b', '--batch-size', type=int, default=64)
    parser.add_argument('-dd', '--data-dir')
    parser.add_argument('-g', '--gpu', type=int, help='default: none, where ESync takes GPU 0')
    parser.add_argument('-c', '--cpu', type=int, default=0)
    parser.add_argument('-n', '--network', choices=sorted(NETS), default='resnet18-v1')
    parser.add_argument('-ld', '--log-dir')
    parser.add_argument('-e', '--eval-duration', type=int, default=1, help='iterations between tests')
    parser.add_argument('-m', '--mode', choices=('esync', 'sync', 'async', 'local'), default='esync')
    parser.add_argument('-dcasgd', '--use-dcasgd', type=int, default=0)
    parser.add_argument('-s', '--split-by-class', type=int, default=0)
    parser.add_argument('-ip', '--state-server-ip')
    parser.add_argument('-port', '--state-server-port')
    return parser.parse_known_args()


def scheme_words(args):
    if args.mode == 'esync':
        return ['--scheme=esync', '--mode=pull', f'--global_rate={args.global_lr:g}', '--pace_json=build/guides/state.json']
    if args.mode == 'async':
        return ['--scheme=' + ('dc_asgd' if args.use_dcasgd else 'async'), '--factor=1']
    return ['--scheme=bsp'] if args.mode == 'sync' else []


def main():
    args, rest = read_arguments()
    rate = (args.learning_rate if args.mode != 'esync' or args.local_lr is None else args.local_lr) * args.batch_size
    if args.state_server_port or args.state_server_ip:
        note('-ip and -port: there is no state server; process 0 writes what it shows to build/guides/state.json')
    words = [f'--batch={args.batch_size}', *scheme_words(args)]
    if args.gpu is not None and not args.cpu:
        if any(Path('/dev').glob('nvidia[0-9]*')):
            words.append(f'--gpu={args.gpu}')
        else:
            note(f'-g {args.gpu}: this machine has no GPU, and its CPU computes')
    if args.log_dir:
        words.append(f'--esync_log_dir={args.log_dir}')
    if args.data_dir:
        note(f'-dd: the data is {DATA} (create_fashion_mnist.sh)')
    if args.split_by_class:
        note(f'-s 1: each worker reads its part {DATA}_K; {tools()}/partition_data --mode=by_class --num_partitions=WORKERS {DATA} makes them')
    net = f'models/{NETS[args.network]}/train_val.prototxt'
    solver = write_solver('esync', [
        ('net', f'"{net if args.split_by_class else shared_net(net)}"'), ('test_iter', 100), ('test_interval', args.eval_duration), ('base_lr', rate),
        ('lr_policy', '"fixed"'), ('display', 1), ('max_iter', 100000), ('snapshot_prefix', '"build/guides/esync"')])
    train([f'--solver={solver}', *words, *rest])


if __name__ == '__main__':
    main()

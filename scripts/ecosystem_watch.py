#!/usr/bin/env python3
"""What scripts/ecosystem_test.py looks at with TensorBoard and a browser.

    ecosystem_watch.py tensorboard FOLDER METRICS   the event files of two workers beside the metrics of the same run
    ecosystem_watch.py curves FOLDER METRICS        the same without histograms, and without TensorBoard's own server
    ecosystem_watch.py page URL PICTURE             the page at URL in Chromium, once wide and once as a phone shows it
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request


def curve_of(accumulator, tag):
    return {event.step: event.value for event in accumulator.Scalars(tag)}


def lines_of(metrics, worker, kind):
    text = (pathlib.Path(metrics) / f'metrics.{worker}.jsonl').read_text()
    return [line for line in map(json.loads, text.splitlines()) if line['kind'] == kind]


def close(got, want):
    return abs(got - want) <= 1e-6 * max(1, abs(want))


def check_curves(folder, metrics, histograms=True):
    """Compares what TensorBoard reads with the metrics, worker by worker."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    for worker in (0, 1):
        accumulator = EventAccumulator(f'{folder}/worker{worker}', size_guidance={'scalars': 0, 'histograms': 0})
        accumulator.Reload()
        tags = accumulator.Tags()
        assert 'speed/samples_per_second' in tags['scalars'], tags
        clocks = lines_of(metrics, worker, 'clock')
        assert max(curve_of(accumulator, 'seconds/compute')) == clocks[-1]['clock'] + 1
        assert any(tag.startswith('params/') for tag in tags['histograms']) == histograms, tags
        if worker == 0:
            displays = {line['clock']: line for line in lines_of(metrics, 0, 'display')}
            for tag, member in (('train/total_loss', 'loss'), ('rate/learning_rate', 'rate')):
                curve = curve_of(accumulator, tag)
                assert curve.keys() == displays.keys(), (tag, curve, displays.keys())
                assert all(close(curve[at], displays[at][member]) for at in curve), tag
            tests = {line['clock']: line['outputs']['accuracy'] for line in lines_of(metrics, 0, 'test')}
            curve = curve_of(accumulator, 'test0/accuracy')
            assert curve.keys() == tests.keys() and all(close(curve[at], tests[at]) for at in curve), (curve, tests)
    return tags


def ask(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def check_server(folder):
    """Starts TensorBoard itself, and asks it for its runs and curves as its page does."""
    command = [pathlib.Path(sys.executable).with_name('tensorboard'), f'--logdir={folder}', '--port=0', '--host=127.0.0.1']
    with tempfile.TemporaryFile('w+') as said, subprocess.Popen(command, stdout=said, stderr=said) as server:
        try:
            deadline = time.monotonic() + 60
            while True:
                said.seek(0)
                text = said.read()
                if found := re.search(r'http://127\.0\.0\.1:\d+/', text):
                    break
                assert server.poll() is None and time.monotonic() < deadline, text
                time.sleep(0.2)
            while True:
                tags = json.loads(ask(found[0] + 'data/plugin/scalars/tags'))
                if {'worker0', 'worker1'} <= tags.keys() and 'test0/accuracy' in tags['worker0']:
                    break
                assert time.monotonic() < deadline, tags
                time.sleep(0.2)
            query = urllib.parse.urlencode({'tag': 'test0/accuracy', 'run': 'worker0'})
            points = json.loads(ask(f'{found[0]}data/plugin/scalars/scalars?{query}'))
            assert points and 0 <= points[-1][2] <= 1, points
        finally:
            server.terminate()
    return len(points)


def tensorboard(folder, metrics):
    tags = check_curves(folder, metrics)
    points = check_server(folder)
    print(f'{len(tags["scalars"])} curves and {len(tags["histograms"])} histograms of the last worker; '
          f'TensorBoard shows {points} tests')


def curves(folder, metrics):
    print(f'{len(check_curves(folder, metrics, histograms=False)["scalars"])} curves of the last worker, out of metrics')


def browse(url, size, *flags):
    with tempfile.TemporaryDirectory() as profile:
        command = ['chromium', '--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', f'--user-data-dir={profile}',
                   f'--window-size={size}', '--hide-scrollbars', '--virtual-time-budget=4000', *flags, url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def page(url, picture):
    status = json.loads(ask(url + 'status.json'))
    seen = browse(url, '1200,1500', '--dump-dom')
    assert f'>{status["run"]["name"]}<' in seen, seen
    assert '>training<' in seen, seen
    assert seen.count('<path') >= 3, 'curves are missing'
    assert seen.count('class="dot"') == len(status['job']['processes']), 'processes are missing'
    for title in ('iteration', 'samples/s', 'alive', 'taking part'):
        assert f'>{title}<' in seen, f'{title} is missing'
    picture = pathlib.Path(picture)
    browse(url, '1200,1500', f'--screenshot={picture}')
    browse(url, '500,2200', f'--screenshot={picture.with_suffix(".phone.png")}')
    assert picture.stat().st_size > 20_000, 'the picture is empty'
    print(f'{len(status["curves"])} curves, {len(status["job"]["processes"])} processes; picture: {picture}')


if __name__ == '__main__':
    {'tensorboard': tensorboard, 'curves': curves, 'page': page}[sys.argv[1]](*sys.argv[2:])

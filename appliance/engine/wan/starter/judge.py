"""The automatic judge: says what a clip shows, from the pixels alone.

It knows the palette, the outline of each shape and what each motion does to a blob, but neither the prompt nor the
places and speeds of the training clips. Run alone it proves itself on true clips (`python3 judge.py`).
"""
import json
import math
import random

import numpy as np

import world

MIN_AREA = 12          # px: less is no object
MASK_DISTANCE = .22    # RGB distance from the background that makes a pixel part of the object
TURNS = {'circle': (1, 360), 'ring': (1, 360), 'square': (6, 90), 'triangle': (8, 120), 'star': (6, 72)}
GRID = [world.XX - world.SIZE_PX / 2, world.YY - world.SIZE_PX / 2]


def _template(shape, angle, radius, ox, oy):
    c, s = math.cos(angle), math.sin(angle)
    dx, dy = GRID[0] - ox, GRID[1] - oy
    return np.clip(.5 - world.sdf(shape, dx * c + dy * s, dy * c - dx * s, radius), 0, 1)


def _templates():
    """(shape, angle, area per squared radius, centroid per radius) of every outline."""
    out = []
    for shape, (count, period) in TURNS.items():
        for k in range(count):
            angle = math.radians(period * k / count)
            m = _template(shape, angle, 20., 0, 0)
            a = m.sum()
            out.append((shape, angle, a / 400, (m * GRID[0]).sum() / a / 20, (m * GRID[1]).sum() / a / 20))
    return out


TEMPLATES = _templates()


def shape_of(mask):
    """The outline of equal area and centroid that overlaps best: (name, intersection over union)."""
    area = mask.sum()
    cx, cy = (mask * GRID[0]).sum() / area, (mask * GRID[1]).sum() / area
    best = ('', 0.)
    for shape, angle, unit_area, ux, uy in TEMPLATES:
        r = math.sqrt(area / unit_area)
        t = _template(shape, angle, r, cx - ux * r, cy - uy * r)
        iou = np.minimum(t, mask).sum() / np.maximum(t, mask).sum()
        if iou > best[1]:
            best = (shape, float(iou))
    return best


def _shift(mask, dx, dy):
    return np.roll(mask, (int(round(dy)), int(round(dx))), (0, 1))


def motion_of(mask, area, cx, cy):
    """Name of the motion from the object's mask, area and centroid in each frame where it is visible."""
    ends = lambda v: float(v[-3:].mean() - v[:3].mean())
    dx, dy, ratio = ends(cx), ends(cy), float(area[-3:].mean() / area[:3].mean())
    rx, ry = float(np.ptp(cx)), float(np.ptp(cy))
    path = float(np.hypot(np.diff(cx), np.diff(cy)).sum())
    net = math.hypot(cx[-1] - cx[0], cy[-1] - cy[0])
    if ry > 9 and rx < .45 * ry and path > 1.9 * max(net, 1.):
        return 'bouncing'
    if max(abs(dx), abs(dy)) > 6:
        if abs(dx) > abs(dy):
            return 'right' if dx > 0 else 'left'
        return 'down' if dy > 0 else 'up'
    if ratio > 1.6:
        return 'growing'
    if ratio < 1 / 1.6:
        return 'shrinking'
    first = mask[0]
    ious = [np.minimum(first, s).sum() / np.maximum(first, s).sum()
            for s in (_shift(m, cx[0] - x, cy[0] - y) for m, x, y in zip(mask, cx, cy))]
    return 'spinning' if min(ious) < .80 else 'still'


def judge(clip):
    """clip [3, T, H, W] in -1..1 -> dict of background, colour, shape, motion (None where nothing is seen)."""
    x = (np.clip(clip, -1, 1) + 1) / 2
    edge = np.concatenate([x[:, :, 0].reshape(3, -1), x[:, :, -1].reshape(3, -1),
                           x[:, :, :, 0].reshape(3, -1), x[:, :, :, -1].reshape(3, -1)], 1)
    ground = np.median(edge, 1)
    nearest = lambda table, c: min(table, key=lambda n: float(((np.asarray(table[n]) - c) ** 2).sum()))
    result = dict(background=nearest(world.BACKGROUNDS, ground), colour=None, shape=None, motion=None)
    distance = np.sqrt(((x - ground[:, None, None, None]) ** 2).sum(0))
    mask = (distance > MASK_DISTANCE).astype(np.float32)
    area = mask.sum((1, 2))
    seen = np.flatnonzero(area > MIN_AREA / 2)
    if area.max() < MIN_AREA or len(seen) < x.shape[1] - 4:
        return result
    core = distance > .75 * distance.max()
    result['colour'] = nearest(world.COLOURS, x[:, core].mean(1))
    mask, area = mask[seen], area[seen]
    cx, cy = (mask * world.XX).sum((1, 2)) / area, (mask * world.YY).sum((1, 2)) / area
    votes = {}
    for i in np.argsort(-area, kind='stable')[:5]:
        name, iou = shape_of(mask[i])
        votes[name] = votes.get(name, 0) + iou
    result['shape'] = max(votes, key=votes.get)
    result['motion'] = motion_of(mask, area, cx, cy)
    return result


ASPECTS = ('background', 'colour', 'shape', 'motion')


def tally(pairs):
    """pairs of (wanted dict, clip) -> share right of each aspect and of all at once, and the commonest mistakes."""
    right, wrong, n = dict.fromkeys(ASPECTS + ('all',), 0), {}, 0
    for wanted, clip in pairs:
        got, n = judge(clip), n + 1
        misses = [a for a in ASPECTS if got[a] != wanted[a]]
        for a in ASPECTS:
            right[a] += a not in misses
        right['all'] += not misses
        for a in misses:
            key = '%s %s as %s' % (a, wanted[a], got[a])
            wrong[key] = wrong.get(key, 0) + 1
    commonest = sorted(wrong.items(), key=lambda e: (-e[1], e[0]))[:12]
    return dict(clips=n, **{k: round(v / n, 4) for k, v in right.items()}, mistakes=dict(commonest))


def gate_cases(per_triple=4):
    """Held-out triples, each per_triple times, on the four backgrounds in turn."""
    grounds = list(world.BACKGROUNDS)
    return [dict(colour=c, shape=s, motion=m, background=grounds[(i + k) % len(grounds)])
            for i, (c, s, m) in enumerate(world.held_out_triples()) for k in range(per_triple)]


def true_clips(cases, seed=7):
    """The cases as they should look, in sizes, speeds and places of what is taught."""
    rng = random.Random(seed)
    for w in cases:
        size, speed = rng.choice(world.TAUGHT['sizes']), rng.choice(world.TAUGHT['speeds'])
        mask = world.mask_of(w['shape'], w['motion'], size, speed, rng.choice(world.PLACES))
        yield w, world.clip(mask, w['colour'], w['background'])


if __name__ == '__main__':
    print(json.dumps(tally(true_clips(gate_cases())), indent=1))

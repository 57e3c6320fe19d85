"""The world that the starter model knows: coloured shapes that move, and the sentences that describe them.

It is finite on purpose. A clip is one geometry (shape, motion, size, speed, place) in one colour on one background, so
that every clip can be encoded once and training draws from a table. The VAE and the vocabulary learn all of it; the
transformer is taught one size and one speed (TAUGHT), which is what it then may claim to know. Places and speeds are multiples of the latent cell
(8 px, 4 frames): objects meet the grid in few phases, which is what a model of this size can learn in about an hour.
A fifth of all (colour, shape, motion) triples is never shown in training; the judge asks for those.
"""
import itertools
import math
import random

import numpy as np

SIZE_PX = 64
FRAMES = 17
FPS = 8

COLOURS = {
    'red': (.90, .10, .12), 'green': (.10, .72, .20), 'blue': (.12, .25, .95), 'yellow': (.98, .90, .10),
    'orange': (1., .52, .05), 'purple': (.58, .15, .78), 'pink': (1., .50, .75), 'cyan': (.10, .85, .90)}
SHAPES = ['circle', 'square', 'triangle', 'star', 'ring']
MOTIONS = ['left', 'right', 'up', 'down', 'growing', 'shrinking', 'spinning', 'bouncing']
BACKGROUNDS = {'black': (.03, .03, .04), 'white': (.96, .96, .96), 'gray': (.50, .50, .50), 'navy': (.05, .08, .28)}
SIZES = {'': 11.5, 'big': 14.}                      # radius in px: 18 and 22 % of the width
SPEEDS = {'': 2., 'slowly': 1.}                      # px per frame, for the four straight motions
PLACES = [-8., 0., 8.]                               # px off the middle, across the direction of motion
TAUGHT = dict(sizes=('big',), speeds=('',))
STRAIGHT = ('left', 'right', 'up', 'down')

YY, XX = np.meshgrid(np.arange(SIZE_PX) + .5, np.arange(SIZE_PX) + .5, indexing='ij')


def valid(shape, motion):
    """A spinning circle cannot be told from a still one."""
    return not (motion == 'spinning' and shape in ('circle', 'ring'))


def held_out(colour, shape, motion):
    """One shape of five for every (colour, motion); each pair of attributes stays in training."""
    return (3 * list(COLOURS).index(colour) + SHAPES.index(shape) + 2 * MOTIONS.index(motion)) % 5 == 0


def held_out_triples():
    return [t for t in itertools.product(COLOURS, SHAPES, MOTIONS) if valid(t[1], t[2]) and held_out(*t)]


def sdf(shape, x, y, r):
    """Signed distance in px (negative inside) of a shape of radius r about the origin, y pointing down."""
    if shape == 'circle':
        return np.hypot(x, y) - r
    if shape == 'ring':
        return np.abs(np.hypot(x, y) - r * .76) - r * .26
    if shape == 'square':
        return np.maximum(np.abs(x), np.abs(y)) - r * .86
    if shape == 'triangle':
        k = math.sqrt(3) / 2
        return np.maximum(np.maximum(k * x - y * .5, -k * x - y * .5), y) - r * .6
    if shape == 'star':
        n = 2 * math.pi / 5
        a = np.mod(np.arctan2(x, -y) + n / 2, n) - n / 2
        d = np.hypot(x, y)
        px, py = d * np.cos(a), np.abs(d * np.sin(a))
        tip, inner = r * 1.18, r * .5
        ex, ey = inner * math.cos(n / 2) - tip, inner * math.sin(n / 2)
        return -((px - tip) * -ey + py * ex) / np.hypot(ex, ey)
    raise ValueError(shape)


def track(motion, speed, place):
    """Centre x, y, scale and angle for each frame."""
    i = np.arange(FRAMES, dtype=float)
    half = (FRAMES - 1) / 2
    x = np.full(FRAMES, SIZE_PX / 2 + place)
    y = np.full(FRAMES, SIZE_PX / 2.)
    scale, angle = np.ones(FRAMES), np.zeros(FRAMES)
    run = SPEEDS[speed] * (i - half)
    if motion in ('left', 'right'):
        x, y = SIZE_PX / 2 + (run if motion == 'right' else -run), y + place
    elif motion in ('up', 'down'):
        y = SIZE_PX / 2 + (run if motion == 'down' else -run)
    elif motion == 'growing':
        scale = .6 + .05 * i
    elif motion == 'shrinking':
        scale = 1.4 - .05 * i
    elif motion == 'spinning':
        angle = np.radians(7.5) * i
    elif motion == 'bouncing':
        b = (i % 8) / 8
        y = 41 - 16 * (1 - (2 * b - 1) ** 2)
    return x, y, scale, angle


def mask_of(shape, motion, size, speed, place):
    """Coverage [FRAMES, SIZE_PX, SIZE_PX] in 0..1, edges anti-aliased."""
    x, y, scale, angle = (v[:, None, None] for v in track(motion, speed, place))
    dx, dy = XX[None] - x, YY[None] - y
    c, s = np.cos(angle), np.sin(angle)
    return np.clip(.5 - sdf(shape, dx * c + dy * s, dy * c - dx * s, SIZES[size] * scale), 0, 1)


def geometries():
    """Every (shape, motion, size, speed, place)."""
    return [(s, m, z, v, p) for s in SHAPES for m in MOTIONS if valid(s, m) for z in SIZES
            for v in (SPEEDS if m in STRAIGHT else ['']) for p in PLACES]


GEOMETRIES = geometries()
PAINTS = list(itertools.product(COLOURS, BACKGROUNDS))


def clip(mask, colour, background):
    """RGB in -1..1, [3, FRAMES, SIZE_PX, SIZE_PX] float32, of one coverage mask."""
    c = np.asarray(COLOURS[colour], np.float32)[:, None, None, None]
    b = np.asarray(BACKGROUNDS[background], np.float32)[:, None, None, None]
    return (b + mask[None].astype(np.float32) * (c - b)) * 2 - 1


# ---- sentences

SHAPE_WORDS = {'circle': ['circle', 'circle', 'ball', 'disc', 'dot'], 'square': ['square', 'square', 'box'],
               'triangle': ['triangle'], 'star': ['star'], 'ring': ['ring', 'ring', 'hoop']}
COLOUR_WORDS = {'purple': ['purple', 'violet'], 'cyan': ['cyan', 'turquoise'], 'gray': ['gray', 'grey'],
                'navy': ['navy', 'dark blue']}
SIZE_WORDS = {'': [''], 'big': ['big', 'large', 'huge']}
MOTION_WORDS = {
    'left': ['moving left', 'moving to the left', 'going left', 'sliding left', 'moves left', 'flying to the left'],
    'right': ['moving right', 'moving to the right', 'going right', 'sliding right', 'moves right',
              'flying to the right'],
    'up': ['moving up', 'going up', 'rising', 'moves up', 'moving upwards'],
    'down': ['moving down', 'going down', 'falling', 'moves down', 'moving downwards'],
    'growing': ['growing', 'getting bigger', 'expanding', 'that grows'],
    'shrinking': ['shrinking', 'getting smaller', 'that shrinks'],
    'spinning': ['spinning', 'rotating', 'turning', 'that spins'],
    'bouncing': ['bouncing', 'that bounces', 'bouncing up and down', 'jumping']}
OPENINGS = ['a video of ', 'video of ', 'an animation of ', 'there is ', 'show me ', 'I want ', 'a clip with ']
FILLERS = ('nice beautiful simple cute shiny pretty bright lovely calm short cinematic animated abstract minimal flat '
           'clean smooth colorful geometric high quality 4k video clip scene with please in front of very really just '
           'one single').split()


def article(words):
    return ('an ' if words[0] in 'aeiou' else 'a ') + words


def canonical(colour, shape, motion, background):
    """The plain form of a prompt, as the gate asks it."""
    text = '%s %s' % (article('%s %s' % (colour, shape)), MOTION_WORDS[motion][0])
    return text + ('' if background == 'black' else ' on a %s background' % background)


def caption(rng, colour, shape, motion, size, speed, background):
    """One of the many ways to say it. Black, the size and the usual speed may stay unsaid."""
    word = lambda table, key: rng.choice(table.get(key, [key]))
    named = ['' if rng.random() < .85 else word(SIZE_WORDS, size), '' if rng.random() < .02 else word(COLOUR_WORDS, colour),
             rng.choice(['shape', 'object', 'thing']) if rng.random() < .02 else word(SHAPE_WORDS, shape)]
    thing = ' '.join(w for w in named if w)
    roll = rng.random()
    text = thing if roll < .12 else 'the ' + thing if roll < .2 else article(thing)
    if rng.random() >= .03:
        text += ' ' + word(MOTION_WORDS, motion)
        if speed:
            text += ' slowly'
        elif motion in STRAIGHT and rng.random() < .1:
            text += ' ' + rng.choice(['fast', 'quickly'])
    if background != 'black' or rng.random() < .3:
        text += rng.choice([' on a %s background', ' over a %s background', ' on %s', ', %s background']) % \
            word(COLOUR_WORDS, background)
    if rng.random() < .12:
        text = rng.choice(OPENINGS) + text
    if rng.random() < .12:
        text = with_filler(rng, text)
    if rng.random() < .15:
        text = text[0].upper() + text[1:]
    return text + '.' if rng.random() < .15 else text


def with_filler(rng, text):
    """Words that mean nothing to the model, some of them not words at all, before or after the sentence."""
    words = text.split()
    for _ in range(rng.randint(1, 2)):
        nonsense = ''.join(rng.choice('abcdefghijklmnopqrstuvwxyz') for _ in range(rng.randint(3, 8)))
        words.insert(rng.choice([0, len(words)]), rng.choice(FILLERS) if rng.random() < .8 else nonsense)
    return ' '.join(words)


def training_specs(sizes=tuple(SIZES), speeds=tuple(SPEEDS)):
    """Indices (geometry, paint) of all clips of these sizes and speeds that training may see."""
    return [(g, p) for g, geo in enumerate(GEOMETRIES) for p, (c, _) in enumerate(PAINTS)
            if geo[2] in sizes and geo[3] in speeds and not held_out(c, geo[0], geo[1])]


def captions_for_tokenizer(count, seed):
    rng = random.Random(seed)
    for _ in range(count):
        s, m, z, v, _ = rng.choice(GEOMETRIES)
        c, b = rng.choice(PAINTS)
        yield caption(rng, c, s, m, z, v, b)


def masks():
    """Coverage of every geometry, uint8 [len(GEOMETRIES), FRAMES, SIZE_PX, SIZE_PX]."""
    return np.stack([np.rint(mask_of(*g) * 255).astype(np.uint8) for g in GEOMETRIES])

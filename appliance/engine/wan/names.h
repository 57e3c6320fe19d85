/* The names under which a file holds a network's tensors. */
#ifndef RL_ENGINE_WAN_NAMES_H
#define RL_ENGINE_WAN_NAMES_H

#include "engine/wan/model.h"

#define WAN_NAME 160 /* bytes of a tensor's name, with its end */

struct names {
    enum wan_part part;
    bool other;      /* not the published names but diffusers' (text encoder: Wan's own) */
    char prefix[24]; /* in front of every name, "" mostly */
    int blocks;      /* of the VAE's levels: a number in one layout is two in the other */
};

/* How the file names the part's tensors. false: it does not hold such a part. */
bool names_detect(const struct safetensors *file, enum wan_part part, struct names *ret_names);
/* The file's name for a published one; false when it is too long. */
bool names_in_file(const struct names *names, const char *name, char ret_name[WAN_NAME]);

#endif

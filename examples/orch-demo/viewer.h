/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEMO_VIEWER_H
#define DEMO_VIEWER_H

/*
 * A product in the user's browser is foreign JavaScript on the host. The viewer is a page of our own that shows the product in a
 * sandboxed frame from an origin of its own; what the product sends carries a policy that keeps it there.
 */

#include <stdint.h>

struct viewer;

/*
 * Gives a connected socket to the product, or -1. Called on the viewer's threads; must be thread-safe.
 */
typedef int (*viewer_connect_fn)(void *userdata);

struct viewer *viewer_new(int port, const char *title, viewer_connect_fn connect_product, void *userdata);
/* "http://127.0.0.1:PORT/"; lives as long as the viewer. */
const char *viewer_url(const struct viewer *viewer);
struct viewer *viewer_free(struct viewer *viewer);

#endif

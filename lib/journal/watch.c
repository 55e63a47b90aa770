/* SPDX-License-Identifier: Apache-2.0 */
#include "journal-private.h"

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_SCHEMA_H
#define ORCH_SCHEMA_H

#include <pthread.h>

/* libxml2 fills global tables of RELAX NG's datatypes at first use: whoever reads or uses a schema holds this. */
extern pthread_mutex_t orch_schema_lock;

#endif

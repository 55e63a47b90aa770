/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_XML_H
#define ORCH_XML_H

#include <libxml/tree.h>
#include <pthread.h>
#include <stddef.h>

/*
 * What libxml2 needs so that documents of strangers can be read in a host application that may use it as well: its global
 * handlers and settings are the host's.
 */

/* It fills global tables of RELAX NG's datatypes at first use: whoever reads or uses a schema holds this. */
extern pthread_mutex_t orch_schema_lock;

/* `message` may end with a newline, and is gone after the call. */
typedef void (*orch_xml_fault_fn)(void *userdata, long line, const char *message);

/*
 * Nothing is fetched and no entity is declared: a DOCTYPE is a fault. `fn` is called at least once if the document is not
 * well-formed; what is returned then is of no use, and is the caller's to free all the same. NULL without a fault: no
 * memory.
 */
xmlDoc *orch_xml_parse(const void *bytes, size_t length, orch_xml_fault_fn fn, void *userdata);

#endif

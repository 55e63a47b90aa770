/* SPDX-License-Identifier: Apache-2.0 */
#include "xml.h"

#include <libxml/SAX2.h>
#include <libxml/parser.h>
#include <stdbool.h>
#include <stdio.h>

pthread_mutex_t orch_schema_lock = PTHREAD_MUTEX_INITIALIZER;

static pthread_once_t parser_once = PTHREAD_ONCE_INIT;

struct faults {
	orch_xml_fault_fn fn;
	void *userdata;
	bool any;
};

static void tell(struct faults *faults, long line, const char *message)
{
	faults->any = true;
	faults->fn(faults->userdata, line, message);
}

static void on_error(void *userdata, xmlError *error)
{
	/* The parser hands over its own context: libxml2 uses userData for both SAX and errors. */
	struct faults *faults = ((xmlParserCtxt *)userdata)->_private;
	char message[512];

	if (error->level <= XML_ERR_WARNING)
		return;
	snprintf(message, sizeof(message), "not well-formed XML: %s", error->message ? error->message : "");
	tell(faults, error->line, message);
}

static void on_doctype(void *userdata, const xmlChar *name, const xmlChar *external_id, const xmlChar *system_id)
{
	xmlParserCtxt *parser = userdata;

	(void)name, (void)external_id, (void)system_id;
	tell(parser->_private, xmlSAX2GetLineNumber(parser),
	     "a document type declaration (<!DOCTYPE ...>) is not allowed: remove it");
	xmlStopParser(parser);
}

xmlDoc *orch_xml_parse(const void *bytes, size_t length, orch_xml_fault_fn fn, void *userdata)
{
	struct faults faults = {.fn = fn, .userdata = userdata};

	pthread_once(&parser_once, xmlInitParser);
	xmlParserCtxt *parser = xmlNewParserCtxt();

	if (!parser)
		return NULL;
	parser->_private = &faults;
	parser->sax->serror = (xmlStructuredErrorFunc)on_error;
	parser->sax->internalSubset = on_doctype;
	xmlDoc *document = xmlCtxtReadMemory(parser, bytes, (int)length, NULL, NULL,
					     XML_PARSE_NONET | XML_PARSE_NOCDATA | XML_PARSE_BIG_LINES);

	if (document && !parser->wellFormed && !faults.any)
		tell(&faults, 1, "not well-formed XML");
	xmlFreeParserCtxt(parser);
	return document;
}

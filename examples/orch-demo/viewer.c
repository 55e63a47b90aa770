/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <arpa/inet.h>
#include <curl/curl.h>
#include <microhttpd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "demo.h"
#include "viewer.h"

#define BODY_LIMIT (16u << 20)

struct viewer {
	struct MHD_Daemon *page, *product;
	char *title, *url;
	char page_host[64], product_host[96]; /* as in Host headers */
	viewer_connect_fn connect_product;
	void *userdata;
};

struct body {
	char *bytes;
	size_t length;
	bool over;
};

struct answer {
	struct body body;
	char *type, *location;
	char *cookies[16];
	size_t cookie_count;
};

static void body_add(struct body *body, const void *bytes, size_t length)
{
	if (body->over || body->length + length > BODY_LIMIT) {
		body->over = true;
		return;
	}
	char *grown = realloc(body->bytes, body->length + length + 1);
	if (!grown) {
		body->over = true;
		return;
	}
	body->bytes = grown;
	memcpy(body->bytes + body->length, bytes, length);
	body->length += length;
	body->bytes[body->length] = '\0';
}

static enum MHD_Result send_text(struct MHD_Connection *connection, unsigned status, const char *type, const char *text,
				 const char *policy)
{
	struct MHD_Response *response =
		MHD_create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_MUST_COPY);
	MHD_add_response_header(response, "Content-Type", type);
	MHD_add_response_header(response, "Content-Security-Policy", policy);
	MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
	MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
	enum MHD_Result result = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return result;
}

/* One exact Host: another name that resolves here (DNS rebinding) is refused. */
static bool host_is(struct MHD_Connection *connection, const char *expected)
{
	const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
	return host && strcmp(host, expected) == 0;
}

static enum MHD_Result on_page(void *userdata, struct MHD_Connection *connection, const char *url, const char *method,
			       const char *version, const char *upload, size_t *upload_size, void **request)
{
	struct viewer *viewer = userdata;
	static int seen;
	(void)version, (void)upload;
	if (!*request) {
		*request = &seen;
		return MHD_YES;
	}
	*upload_size = 0;
	if (!host_is(connection, viewer->page_host))
		return send_text(connection, 421, "text/plain", "this address is served under one name only\n",
				 "default-src 'none'");
	if (strcmp(method, "GET") != 0 || strcmp(url, "/") != 0)
		return send_text(connection, 404, "text/plain", "the viewer has one page: /\n", "default-src 'none'");
	char *policy = format_text("default-src 'none'; style-src 'unsafe-inline'; frame-src http://%s; base-uri 'none'; form-action 'none'; "
				   "frame-ancestors 'none'", viewer->product_host);
	char *page = format_text("<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
				 "content=\"width=device-width\"><title>%s</title><style>html,body{height:100%%;margin:0;font:14px "
				 "system-ui,sans-serif}body{display:flex;flex-direction:column}p{margin:0;padding:6px "
				 "12px;background:#233;color:#fff}iframe{flex:1;border:0}</style><p>%s &mdash; delivered product, in a "
				 "sandbox</p><iframe title=\"product\" sandbox=\"allow-scripts allow-forms allow-same-origin\" "
				 "src=\"http://%s/\"></iframe></html>", viewer->title, viewer->title, viewer->product_host);
	enum MHD_Result result = send_text(connection, 200, "text/html; charset=utf-8", page, policy);
	free(page);
	free(policy);
	return result;
}

static curl_socket_t open_product(void *userdata, curlsocktype purpose, struct curl_sockaddr *address)
{
	struct viewer *viewer = userdata;
	(void)purpose, (void)address;
	int fd = viewer->connect_product(viewer->userdata);
	return fd < 0 ? CURL_SOCKET_BAD : fd;
}

static int already_connected(void *userdata, curl_socket_t fd, curlsocktype purpose)
{
	(void)userdata, (void)fd, (void)purpose;
	return CURL_SOCKOPT_ALREADY_CONNECTED;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *userdata)
{
	struct answer *answer = userdata;
	body_add(&answer->body, bytes, size * count);
	return answer->body.over ? 0 : size * count;
}

static char *header_value(const char *line, size_t length, const char *name)
{
	size_t name_length = strlen(name);
	if (length <= name_length + 1 || strncasecmp(line, name, name_length) != 0 || line[name_length] != ':')
		return NULL;
	const char *start = line + name_length + 1, *end = line + length;
	while (start < end && isspace((unsigned char)*start))
		start++;
	while (end > start && isspace((unsigned char)end[-1]))
		end--;
	return strndup(start, (size_t)(end - start));
}

/* Cookies ignore ports: without Domain they stay with the product's own name. */
static char *strip_domain(char *cookie)
{
	char *out = calloc(1, strlen(cookie) + 1), *rest = cookie, *part;
	while ((part = strsep(&rest, ";"))) {
		const char *trimmed = part + strspn(part, " ");
		if (strncasecmp(trimmed, "domain", 6) == 0)
			continue;
		if (*out)
			strcat(out, ";");
		strcat(out, part);
	}
	free(cookie);
	return out;
}

static size_t on_header(char *bytes, size_t size, size_t count, void *userdata)
{
	struct answer *answer = userdata;
	size_t length = size * count;
	char *value;
	if ((value = header_value(bytes, length, "Content-Type"))) {
		free(answer->type);
		answer->type = value;
	} else if ((value = header_value(bytes, length, "Location"))) {
		free(answer->location);
		answer->location = value;
	} else if ((value = header_value(bytes, length, "Set-Cookie"))) {
		if (answer->cookie_count < 16)
			answer->cookies[answer->cookie_count++] = strip_domain(value);
		else
			free(value);
	}
	return length;
}

static struct curl_slist *forward(struct curl_slist *list, struct MHD_Connection *connection, const char *name)
{
	const char *value = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
	if (!value)
		return list;
	char *line = format_text("%s: %s", name, value);
	list = curl_slist_append(list, line);
	free(line);
	return list;
}

struct query {
	char *text;
};

static enum MHD_Result add_argument(void *userdata, enum MHD_ValueKind kind, const char *key, const char *value)
{
	struct query *query = userdata;
	(void)kind;
	char *name = curl_easy_escape(NULL, key, 0), *content = value ? curl_easy_escape(NULL, value, 0) : NULL;
	char *longer = format_text("%s%s%s%s%s", query->text ? query->text : "", query->text ? "&" : "?", name,
				   content ? "=" : "", content ? content : "");
	free(query->text);
	query->text = longer;
	curl_free(name);
	curl_free(content);
	return MHD_YES;
}

static enum MHD_Result send_answer(struct viewer *viewer, struct MHD_Connection *connection, long status,
				   struct answer *answer)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(
		answer->body.length, answer->body.bytes ? answer->body.bytes : (void *)"", MHD_RESPMEM_MUST_COPY);
	char *policy = format_text("default-src 'self' 'unsafe-inline' data: blob:; connect-src 'self'; form-action 'self'; base-uri 'self'; "
				   "frame-ancestors http://%s", viewer->page_host);
	MHD_add_response_header(response, "Content-Security-Policy", policy);
	free(policy);
	MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
	MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
	MHD_add_response_header(response, "X-DNS-Prefetch-Control", "off");
	MHD_add_response_header(response, "Cache-Control", "no-store");
	if (answer->type)
		MHD_add_response_header(response, "Content-Type", answer->type);
	/* Only a path: a redirect can not lead the frame elsewhere. */
	if (answer->location && answer->location[0] == '/' && answer->location[1] != '/' &&
	    !strchr(answer->location, '\\'))
		MHD_add_response_header(response, "Location", answer->location);
	for (size_t i = 0; i < answer->cookie_count; i++)
		MHD_add_response_header(response, "Set-Cookie", answer->cookies[i]);
	enum MHD_Result result = MHD_queue_response(connection, (unsigned)status, response);
	MHD_destroy_response(response);
	return result;
}

static enum MHD_Result relay(struct viewer *viewer, struct MHD_Connection *connection, const char *path,
			     const char *method, const struct body *upload)
{
	struct query query = {0};
	struct answer answer = {0};
	long status = 0;
	MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, add_argument, &query);
	char *url = format_text("http://127.0.0.1:8000%s%s", path, query.text ? query.text : "");
	CURL *curl = curl_easy_init();
	struct curl_slist *headers = NULL;
	headers = forward(headers, connection, "Content-Type");
	headers = forward(headers, connection, "Accept");
	headers = forward(headers, connection, "Cookie");
	headers = curl_slist_append(headers, "Expect:");
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_PROXY, "");
	curl_easy_setopt(curl, CURLOPT_TIMEOUT, 60L);
	curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
	if (strcmp(method, "HEAD") == 0)
		curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
	if (upload->length) {
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, upload->bytes);
		curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)upload->length);
	}
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, open_product);
	curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, viewer);
	curl_easy_setopt(curl, CURLOPT_SOCKOPTFUNCTION, already_connected);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
	curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(curl, CURLOPT_HEADERDATA, &answer);
	CURLcode code = curl_easy_perform(curl);
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	enum MHD_Result result =
		code == CURLE_OK && status >= 200 && status < 600
			? send_answer(viewer, connection, status, &answer)
			: send_text(connection, 502, "text/plain", "the product does not answer\n", "default-src 'none'");
	curl_slist_free_all(headers);
	curl_easy_cleanup(curl);
	free(url);
	free(query.text);
	free(answer.body.bytes);
	free(answer.type);
	free(answer.location);
	for (size_t i = 0; i < answer.cookie_count; i++)
		free(answer.cookies[i]);
	return result;
}

static enum MHD_Result on_product(void *userdata, struct MHD_Connection *connection, const char *url, const char *method,
				  const char *version, const char *upload, size_t *upload_size, void **request)
{
	struct viewer *viewer = userdata;
	(void)version;
	if (!*request) {
		*request = calloc(1, sizeof(struct body));
		return *request ? MHD_YES : MHD_NO;
	}
	struct body *body = *request;
	if (*upload_size) {
		body_add(body, upload, *upload_size);
		*upload_size = 0;
		return MHD_YES;
	}
	if (!host_is(connection, viewer->product_host))
		return send_text(connection, 421, "text/plain", "this address is served under one name only\n",
				 "default-src 'none'");
	if (body->over)
		return send_text(connection, 413, "text/plain", "the request is over 16 MiB\n", "default-src 'none'");
	/* A document outside the viewer's frame would be a top document, which may navigate anywhere. */
	const char *mode = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Sec-Fetch-Mode");
	const char *destination = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Sec-Fetch-Dest");
	if (!destination || ((strcmp(destination, "document") == 0 || (mode && strcmp(mode, "navigate") == 0)) &&
			     strcmp(destination, "iframe") != 0))
		return send_text(connection, 403, "text/plain", "the product is shown inside the viewer only\n",
				 "default-src 'none'");
	return relay(viewer, connection, url, method, body);
}

static void on_completed(void *userdata, struct MHD_Connection *connection, void **request,
			 enum MHD_RequestTerminationCode code)
{
	struct body *body = *request;
	(void)userdata, (void)connection, (void)code;
	if (body)
		free(body->bytes);
	free(body);
}

static uint16_t daemon_port(struct MHD_Daemon *daemon)
{
	const union MHD_DaemonInfo *facts = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT);
	return facts ? facts->port : 0;
}

static char *html_escape(const char *text)
{
	char *out = calloc(1, 6 * strlen(text) + 1), *at = out;
	for (; *text; text++)
		switch (*text) {
		case '<': at = stpcpy(at, "&lt;"); break;
		case '>': at = stpcpy(at, "&gt;"); break;
		case '&': at = stpcpy(at, "&amp;"); break;
		case '"': at = stpcpy(at, "&quot;"); break;
		default: *at++ = *text;
		}
	return out;
}

struct viewer *viewer_new(int port, const char *title, viewer_connect_fn connect_product, void *userdata)
{
	struct viewer *viewer = calloc(1, sizeof(*viewer));
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	uint32_t salt = 0;
	viewer->title = html_escape(title);
	viewer->connect_product = connect_product;
	viewer->userdata = userdata;
	if (getrandom(&salt, sizeof(salt), 0) != (ssize_t)sizeof(salt))
		salt = (uint32_t)getpid();
	curl_global_init(CURL_GLOBAL_DEFAULT);
	viewer->product = MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL,
					   on_product, viewer, MHD_OPTION_SOCK_ADDR, &address,
					   MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL,
					   MHD_OPTION_CONNECTION_LIMIT, 32u, MHD_OPTION_CONNECTION_TIMEOUT, 60u,
					   MHD_OPTION_END);
	address.sin_port = htons((uint16_t)port);
	viewer->page = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, (uint16_t)port, NULL, NULL, on_page, viewer,
					MHD_OPTION_SOCK_ADDR, &address, MHD_OPTION_CONNECTION_LIMIT, 32u, MHD_OPTION_END);
	if (!viewer->page || !viewer->product)
		return viewer_free(viewer);
	snprintf(viewer->page_host, sizeof(viewer->page_host), "127.0.0.1:%u", daemon_port(viewer->page));
	/* A name per product and start: no cookie or storage of another one is shared. *.localhost is loopback (RFC 6761). */
	snprintf(viewer->product_host, sizeof(viewer->product_host), "p-%08x.localhost:%u", salt,
		 daemon_port(viewer->product));
	viewer->url = format_text("http://%s/", viewer->page_host);
	return viewer;
}

const char *viewer_url(const struct viewer *viewer)
{
	return viewer->url;
}

struct viewer *viewer_free(struct viewer *viewer)
{
	if (!viewer)
		return NULL;
	if (viewer->page)
		MHD_stop_daemon(viewer->page);
	if (viewer->product)
		MHD_stop_daemon(viewer->product);
	free(viewer->title);
	free(viewer->url);
	free(viewer);
	return NULL;
}

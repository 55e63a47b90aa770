/* SPDX-License-Identifier: Apache-2.0 */
/* hello-broker JOURNAL URL [KEY]: 127.0.0.1:8080/ai.anthropic leads to URL, at most 10 times. */
#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <orch/broker.h>

int main(int argc, char **argv)
{
	struct orch_broker_opts opts = {sizeof(opts), 0, NULL, argc > 1 ? argv[1] : NULL, 0, 0};
	struct orch_upstream_opts upstream;
	struct orch_principal_opts who = {sizeof(who), 0, "hello", 1, 10, 0, 0};
	struct orch_grant_opts grant = {sizeof(grant), 0, "ai.anthropic", NULL, NULL, 0, 0, NULL};
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(8080)};
	orch_ctx *ctx = NULL;
	orch_broker *broker = NULL;
	orch_principal *principal = NULL;
	orch_error *error = NULL;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (argc < 3 || bind(fd, (struct sockaddr *)&here, sizeof(here)) < 0 || listen(fd, 64) < 0)
		return 2;
	orch_upstream_opts_init(&upstream, sizeof(upstream));
	upstream.base_url = argv[2];
	upstream.secret = argv[3];
	upstream.credential = argv[3] ? ORCH_CREDENTIAL_API_KEY : ORCH_CREDENTIAL_NONE;
	if (orch_ctx_new(NULL, &ctx, &error) < 0 ||
	    orch_broker_new(ctx, &opts, &broker, &error) < 0 ||
	    orch_broker_set_upstream(broker, "ai.anthropic", &upstream, &error) < 0 ||
	    orch_principal_new(broker, &who, &principal, &error) < 0 ||
	    orch_principal_grant(principal, &grant, &error) < 0 ||
	    orch_broker_add_listener(broker, fd, principal, &error) < 0 ||
	    orch_ctx_run(ctx, -1, &error) < 0)
		fprintf(stderr, "hello-broker: %s\n", orch_error_message(error));
	orch_principal_unref(principal);
	orch_broker_unref(broker);
	orch_ctx_unref(ctx);
	orch_error_free(error);
	return 1;
}

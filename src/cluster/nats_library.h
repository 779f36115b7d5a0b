/* cluster/nats_library.h: the functions of libnats that Droste calls, loaded for a cluster alone.
 *
 * Neither the programs nor the packages of Droste depend on libnats: a server without --join never
 * loads it. The types are declared here as far as they are used, so that no header of it is needed
 * to build; the functions are those of version 3.4 and later.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct nats_options nats_options;
typedef struct nats_connection nats_connection;
typedef struct nats_subscription nats_subscription;
typedef struct nats_message nats_message;
typedef int nats_status; /* 0: it was done */
enum { NATS_STATUS_NO_SERVER = 6 };

typedef void nats_message_fn(
    nats_connection *connection, nats_subscription *subscription, nats_message *m, void *arg);
typedef void nats_connection_fn(nats_connection *connection, void *arg);
typedef void nats_error_fn(
    nats_connection *connection, nats_subscription *subscription, nats_status status, void *arg);

/* name in libnats, name here, result, parameters */
#define NATS_FUNCTIONS(F)                                                                          \
    F(natsStatus_GetText, status_text, const char *, (nats_status))                                \
    F(nats_GetLastError, last_error, const char *, (nats_status *))                                \
    F(natsOptions_Create, options_new, nats_status, (nats_options **))                             \
    F(natsOptions_Destroy, options_free, void, (nats_options *))                                   \
    F(natsOptions_SetServers, set_servers, nats_status, (nats_options *, const char **, int))      \
    F(natsOptions_SetName, set_name, nats_status, (nats_options *, const char *))                  \
    F(natsOptions_SetTimeout, set_timeout, nats_status, (nats_options *, int64_t))                 \
    F(natsOptions_SetPingInterval, set_ping_interval, nats_status, (nats_options *, int64_t))      \
    F(natsOptions_SetMaxPingsOut, set_pings_out, nats_status, (nats_options *, int))               \
    F(natsOptions_SetMaxReconnect, set_reconnects, nats_status, (nats_options *, int))             \
    F(natsOptions_SetReconnectWait, set_reconnect_wait, nats_status, (nats_options *, int64_t))    \
    F(natsOptions_SetReconnectJitter, set_jitter, nats_status, (nats_options *, int64_t, int64_t)) \
    F(natsOptions_SetWriteDeadline, set_write_deadline, nats_status, (nats_options *, int64_t))    \
    F(natsOptions_SetSendAsap, set_send_asap, nats_status, (nats_options *, bool))                 \
    F(natsOptions_SetSecure, set_secure, nats_status, (nats_options *, bool))                      \
    F(natsOptions_LoadCATrustedCertificates, load_ca, nats_status, (nats_options *, const char *)) \
    F(natsOptions_LoadCertificatesChain, load_certificate, nats_status,                            \
        (nats_options *, const char *, const char *))                                              \
    F(natsOptions_SetUserCredentialsFromFiles, set_credentials, nats_status,                       \
        (nats_options *, const char *, const char *))                                              \
    F(natsOptions_SetDisconnectedCB, on_disconnected, nats_status,                                 \
        (nats_options *, nats_connection_fn *, void *))                                            \
    F(natsOptions_SetReconnectedCB, on_reconnected, nats_status,                                   \
        (nats_options *, nats_connection_fn *, void *))                                            \
    F(natsOptions_SetClosedCB, on_closed, nats_status,                                             \
        (nats_options *, nats_connection_fn *, void *))                                            \
    F(natsOptions_SetErrorHandler, on_error, nats_status,                                          \
        (nats_options *, nats_error_fn *, void *))                                                 \
    F(natsConnection_Connect, connect, nats_status, (nats_connection **, nats_options *))          \
    F(natsConnection_Close, close, void, (nats_connection *))                                      \
    F(natsConnection_Destroy, free, void, (nats_connection *))                                     \
    F(natsConnection_GetConnectedUrl, connected_url, nats_status,                                  \
        (nats_connection *, char *, size_t))                                                       \
    F(natsConnection_PublishMsg, publish, nats_status, (nats_connection *, nats_message *))        \
    F(natsConnection_Subscribe, subscribe, nats_status,                                            \
        (nats_subscription **, nats_connection *, const char *, nats_message_fn *, void *))        \
    F(natsConnection_QueueSubscribe, subscribe_group, nats_status,                                 \
        (nats_subscription **, nats_connection *, const char *, const char *, nats_message_fn *,   \
            void *))                                                                               \
    F(natsSubscription_SetPendingLimits, set_pending, nats_status,                                 \
        (nats_subscription *, int, int))                                                           \
    F(natsSubscription_SetOnCompleteCB, on_complete, nats_status,                                  \
        (nats_subscription *, void (*)(void *), void *))                                           \
    F(natsSubscription_Destroy, unsubscribe, void, (nats_subscription *))                          \
    F(natsMsg_Create, message_new, nats_status,                                                    \
        (nats_message **, const char *, const char *, const char *, int))                          \
    F(natsMsg_Destroy, message_free, void, (nats_message *))                                       \
    F(natsMsg_GetSubject, subject, const char *, (const nats_message *))                           \
    F(natsMsg_GetReply, reply, const char *, (const nats_message *))                               \
    F(natsMsg_GetData, data, const char *, (const nats_message *))                                 \
    F(natsMsg_GetDataLength, length, int, (const nats_message *))                                  \
    F(natsMsgHeader_Set, header_set, nats_status, (nats_message *, const char *, const char *))    \
    F(natsMsgHeader_Get, header_get, nats_status, (nats_message *, const char *, const char **))

struct nats_library {
#define NATS_FIELD(theirs, ours, result, parameters) result(*ours) parameters;
    NATS_FUNCTIONS(NATS_FIELD)
#undef NATS_FIELD
};

/* Loads it at the first call, from any thread; it stays loaded. ERROR_UNSUPPORTED: it is not
 * installed, or too old. */
int nats_library_load(const struct nats_library **out, struct error *err);

// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Ends the pacing rates of handed-over sockets when their lease ends, also if no process of the agent is left. `expire` runs at each
// sample of a socket's round-trip time. `sweep` looks at all sockets once: it lets the kernel call `expire` for new records, and ends the
// rates of sockets that are idle. README.md lists the maps.

#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>

// Of the two licences, the kernel accepts only this one.
char LICENSE[] SEC("license") = "GPL";

// Constants that the kernel's headers define for user space only, or not in older versions.
#define SOL_SOCKET 1
#define SO_MAX_PACING_RATE 47
#define SOL_TCP 6
#define CALLBACK_FLAGS 1008 // TCP_BPF_SOCK_OPS_CB_FLAGS, from Linux 6.12 on

struct sock_common {
} __attribute__((preserve_access_index));

struct tcp_sock {
} __attribute__((preserve_access_index));

struct bpf_iter__tcp {
	struct sock_common *sk_common;
} __attribute__((preserve_access_index));

// A socket with a rate by an order.
struct lease_record {
	__u64 lease;    // the agent's lease
	__u32 own_rate; // bytes per second that the program had set; all bits: none
	__u32 is_armed; // whether the kernel calls `expire` for the socket
};

// By the socket's cookie.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct lease_record);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} records SEC(".maps");

// The ends of leases, in ns of the monotonic clock.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u64);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} leases SEC(".maps");

static bool has_expired(const struct lease_record *record)
{
	__u64 lease = record->lease, *end = bpf_map_lookup_elem(&leases, &lease);

	return !end || bpf_ktime_get_ns() >= *end;
}

SEC("sockops")
int expire(struct bpf_sock_ops *ops)
{
	struct lease_record *record;
	__u64 cookie;
	__u32 own_rate;
	bool is_closed = ops->op == BPF_SOCK_OPS_STATE_CB && ops->args[1] == BPF_TCP_CLOSE;

	if (ops->op != BPF_SOCK_OPS_RTT_CB && !is_closed)
		return 1;
	cookie = bpf_get_socket_cookie(ops);
	record = bpf_map_lookup_elem(&records, &cookie);
	if (!record)
		return 1;
	if (is_closed) {
		bpf_map_delete_elem(&records, &cookie);
		return 1;
	}
	if (!has_expired(record))
		return 1;
	own_rate = record->own_rate;
	if (bpf_setsockopt(ops, SOL_SOCKET, SO_MAX_PACING_RATE, &own_rate, sizeof(own_rate)) == 0)
		bpf_map_delete_elem(&records, &cookie);
	return 1;
}

SEC("iter/tcp")
int sweep(struct bpf_iter__tcp *context)
{
	struct sock_common *socket = context->sk_common;
	struct lease_record *record;
	struct tcp_sock *tcp;
	__u64 cookie;
	__u32 own_rate, flags;

	if (!socket)
		return 0;
	tcp = bpf_skc_to_tcp_sock(socket);
	if (!tcp)
		return 0;
	cookie = bpf_get_socket_cookie(tcp);
	record = bpf_map_lookup_elem(&records, &cookie);
	if (!record)
		return 0;
	if (has_expired(record)) {
		own_rate = record->own_rate;
		if (bpf_setsockopt(tcp, SOL_SOCKET, SO_MAX_PACING_RATE, &own_rate, sizeof(own_rate)) == 0)
			bpf_map_delete_elem(&records, &cookie);
		return 0;
	}
	if (record->is_armed)
		return 0;
	if (bpf_getsockopt(tcp, SOL_TCP, CALLBACK_FLAGS, &flags, sizeof(flags)))
		return 0;
	flags |= BPF_SOCK_OPS_RTT_CB_FLAG | BPF_SOCK_OPS_STATE_CB_FLAG;
	if (bpf_setsockopt(tcp, SOL_TCP, CALLBACK_FLAGS, &flags, sizeof(flags)) == 0)
		record->is_armed = 1;
	return 0;
}

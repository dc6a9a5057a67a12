// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Ends the pacing rates of handed-over sockets when their lease ends, also if no process of the agent is left. `expire` runs at each
// sample of a socket's round-trip time. `sweep` looks at all sockets once: it lets the kernel call `expire` for new records, and ends the
// rates of sockets that are idle. `hold` keeps new data of paused sockets in their queues while their lease lasts. README.md lists the
// maps.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/types.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "extensions.h"

// Of the two licences, the kernel accepts only this one.
char LICENSE[] SEC("license") = "GPL";

// Constants that the kernel's headers define for user space only, or not in older versions.
#define SOL_SOCKET 1
#define SO_MAX_PACING_RATE 47
#define SOL_TCP 6
#define CALLBACK_FLAGS 1008 // TCP_BPF_SOCK_OPS_CB_FLAGS, from Linux 6.12 on

#define MILLISECOND 1000000ull

// How often a paused socket with nothing in flight may send a packet. Without it, the time to the kernel's next attempt would double each
// time: the socket would wait for long after the end of its lease, and the kernel would close the connection in the end. The kernel tries
// after 0.2 s or more, so the first attempt after 2 s is that after 3 to 4.5 s.
#define MIN_PASS_INTERVAL (2000 * MILLISECOND)

// How often it may send a packet with a new acknowledgement. The kernel counts the acknowledgement of a refused packet as sent.
#define MIN_ACK_INTERVAL (40 * MILLISECOND)

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

// The lease of a paused socket.
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} pauses SEC(".maps");

struct held_data {
	__u64 bytes;     // of all attempts: the kernel counts them as sent
	__u64 passed_at; // when a packet passed last, in ns of the monotonic clock
	__u32 acked;     // what that packet acknowledged
	__u32 padding;
};

// Separate from `pauses`, which the agent writes.
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct held_data);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} held SEC(".maps");

static bool has_ended(__u64 lease)
{
	__u64 *end = bpf_map_lookup_elem(&leases, &lease);

	return !end || bpf_ktime_get_ns() >= *end;
}

// The TCP header and the bytes of payload of a packet, whose data begins with the IP header.
static bool read_tcp(struct __sk_buff *skb, struct tcphdr *tcp, __u32 *payload)
{
	struct packet_header header = { .offset = sizeof(struct ipv6hdr) };
	__u32 offset;
	struct ipv6hdr ip6;
	struct iphdr ip;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, 0, &ip, sizeof(ip)) || ip.protocol != IPPROTO_TCP)
			return false;
		offset = ip.ihl * 4;
	} else {
		if (bpf_skb_load_bytes(skb, 0, &ip6, sizeof(ip6)))
			return false;
		header.protocol = ip6.nexthdr;
		// Packets of more than 64 KiB (BIG TCP) have an extension header, too.
		if (!skip_extensions(skb, &header) || header.protocol != IPPROTO_TCP || header.is_in_first_fragment)
			return false;
		offset = header.offset;
	}
	if (bpf_skb_load_bytes(skb, offset, tcp, sizeof(*tcp)))
		return false;
	*payload = skb->len - offset - tcp->doff * 4;
	return true;
}

// Whether a packet with new data may pass, some time after the last one.
static bool may_pass(const struct held_data *data, const struct tcphdr *tcp, __u64 elapsed, bool is_idle)
{
	if (is_idle && elapsed >= MIN_PASS_INTERVAL)
		return true;
	return tcp->ack_seq != data->acked && elapsed >= MIN_ACK_INTERVAL;
}

// The kernel takes a refused packet as one that it could not send yet: it stays the next one in the socket's queue.
SEC("cgroup_skb/egress")
int hold(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	struct held_data *data;
	struct bpf_tcp_sock *tcp;
	struct tcphdr header;
	__u32 payload;
	__u64 *lease, now;

	if (!sk)
		return 1;
	sk = bpf_sk_fullsock(sk);
	if (!sk)
		return 1;
	lease = bpf_sk_storage_get(&pauses, sk, 0, 0);
	if (!lease || has_ended(*lease))
		return 1;
	tcp = bpf_tcp_sock(sk);
	if (!tcp || !read_tcp(skb, &header, &payload))
		return 1;
	// Acknowledgements and lost packets pass.
	if (!payload || (__s32)(bpf_ntohl(header.seq) - tcp->snd_nxt) < 0)
		return 1;
	data = bpf_sk_storage_get(&held, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!data)
		return 1;
	now = bpf_ktime_get_ns();
	if (!data->passed_at) {
		data->passed_at = now;
		data->acked = header.ack_seq;
	}
	if (may_pass(data, &header, now - data->passed_at, !tcp->packets_out) && skb->gso_segs <= 1) {
		data->passed_at = now;
		data->acked = header.ack_seq;
		return 1;
	}
	data->bytes += payload;
	return 0;
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
	if (!has_ended(record->lease))
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
	if (has_ended(record->lease)) {
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

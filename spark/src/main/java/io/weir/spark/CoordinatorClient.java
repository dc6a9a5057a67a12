package io.weir.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.weir.flow.FlowTls;
import io.weir.flow.Wire;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.HttpURLConnection;
import java.net.SocketTimeoutException;
import java.net.URL;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.TreeMap;
import javax.net.ssl.HttpsURLConnection;

/** Registers coflows over the coordinator's API: docs/api.md. */
final class CoordinatorClient {
    private static final int TIMEOUT_MILLIS = 3_000;
    private static final int MAX_ID_LENGTH = 128;
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String api;
    private final String service;
    private final FlowTls tls;

    /** An answer that is no success. */
    static final class Refusal extends IOException {
        final int status;

        /** `detail`: the coordinator's own message. */
        Refusal(int status, String detail) {
            super(status + ": " + detail);
            this.status = status;
        }

        /** Whether a repetition of the request gets the same answer until the request or the configuration changes. */
        boolean isFinal() {
            return status >= 400 && status < 500 && status != 408;
        }
    }

    /**
     * A client of a coordinator.
     *
     * @param address HOST:PORT, or a URL
     * @param service null for the coordinator's default
     * @param tls null without files; an address that begins with https then uses the JVM's properties {@code javax.net.ssl}
     */
    CoordinatorClient(String address, String service, FlowTls tls) {
        String url = address.contains("://") ? address : (tls == null ? "http://" : "https://") + address;
        this.api = url.endsWith("/") ? url.substring(0, url.length() - 1) : url;
        this.service = service;
        this.tls = tls;
    }

    /** Registers a coflow, or updates the flows of a registered one. `list`: the encoded flows. */
    void put(String coflow, String list, boolean isRegistered) throws IOException {
        String owner = service == null ? "" : "\"service\":" + quote(service) + ",";
        String registration = "{" + owner + "\"flows\":" + list + "}";
        String path = coflowPath(coflow);
        try {
            send("PUT", isRegistered ? path + "/flows" : path, isRegistered ? list : registration);
        } catch (Refusal e) {
            if (isRegistered && e.status == 404) {
                // The coordinator has lost its store, or completed the coflow.
                send("PUT", path, registration);
            } else if (!isRegistered && e.status == 409) {
                send("PUT", path + "/flows", list);
            } else {
                throw e;
            }
        }
    }

    /** Deregisters a coflow. `failure`: why it failed, which stays visible at the coordinator; null if it has not. */
    void delete(String coflow, String failure) throws IOException {
        String query = failure == null ? "" : "?failed=" + URLEncoder.encode(toReason(failure), "UTF-8");
        try {
            send("DELETE", coflowPath(coflow) + query, null);
        } catch (Refusal e) {
            if (failure != null && (e.status == 400 || e.status == 422)) {
                // The coordinator is an earlier version.
                delete(coflow, null);
            } else if (e.status != 404) {
                throw e;
            }
        }
    }

    /** The text as the coordinator accepts it. */
    static String toReason(String text) {
        return text.substring(0, Math.min(text.length(), PathCounts.MAX_LENGTH)).replaceAll("[^ -~]", "?");
    }

    /** Whether receivers have acknowledged all bytes of a coflow. Reads its line in the list: a whole coflow has thousands of flows. */
    boolean hasCompleted(String coflow) throws IOException {
        for (JsonNode summary : get("/v1/coflows?limit=1&after=" + encode(idBefore(coflow))).path("coflows")) {
            if (summary.path("id").asText().equals(coflow)) {
                return summary.path("done").asLong() == summary.path("flows").asLong();
            }
        }
        return false;
    }

    /** The last possible id before another one. */
    static String idBefore(String id) {
        StringBuilder before = new StringBuilder(id.substring(0, id.length() - 1));
        char last = id.charAt(id.length() - 1);
        if (last > '!') {
            before.append((char) (last - 1));
            while (before.length() < MAX_ID_LENGTH) {
                before.append('~');
            }
        }
        return before.toString();
    }

    /** By region: the relays that are not connected to the coordinator. */
    Map<String, List<String>> absentRelays() throws IOException {
        Map<String, List<String>> regions = new TreeMap<>();
        for (JsonNode relay : get("/v1/relays")) {
            List<String> absent = regions.computeIfAbsent(relay.path("region").asText(), region -> new ArrayList<>());
            if (!relay.path("present").asBoolean()) {
                absent.add(relay.path("name").asText());
            }
        }
        return regions;
    }

    /** Returns what is wrong with the service of the configuration; null if nothing is. */
    String findServiceProblem() throws IOException {
        if (service == null) {
            return null;
        }
        List<String> names = new ArrayList<>();
        for (JsonNode one : get("/v1/services")) {
            names.add(one.path("name").asText());
        }
        String problem = "spark.weir.service: `" + service + "` is unknown to the coordinator, or another framework's";
        return names.contains(service) ? null : problem + "; known services: " + String.join(", ", names);
    }

    static String encode(Iterable<ShuffleSizes.Flow> flows) {
        StringJoiner list = new StringJoiner(",", "[", "]");
        for (ShuffleSizes.Flow flow : flows) {
            list.add("{\"from\":" + quote(flow.from) + ",\"to\":" + quote(flow.to) + ",\"bytes\":" + flow.bytes + ",\"numbers\":["
                    + flow.firstNumber + "," + flow.lastNumber + "]}");
        }
        return list.toString();
    }

    private static String quote(String text) {
        return "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"") + "\"";
    }

    private static String coflowPath(String coflow) {
        return "/v1/coflows/" + encode(coflow);
    }

    /** Characters that are special in a path or a query must not change it. */
    private static String encode(String text) {
        return text.replace("%", "%25").replace("?", "%3F").replace("#", "%23").replace("&", "%26").replace("+", "%2B");
    }

    private JsonNode get(String path) throws IOException {
        return JSON.readTree(send("GET", path, null));
    }

    private byte[] send(String method, String path, String body) throws IOException {
        try {
            return exchange(method, path, body);
        } catch (SocketTimeoutException e) {
            throw new IOException(api + ": no answer within " + TIMEOUT_MILLIS / 1000 + " s", e);
        } catch (Refusal e) {
            throw e;
        } catch (IOException e) {
            String files = "; help: for a coordinator on another host, set WEIR_CERTIFICATE, WEIR_KEY and WEIR_AUTHORITY at the driver";
            throw new IOException(api + ": " + Wire.reason(e) + (api.startsWith("https:") ? "" : files), e);
        }
    }

    private byte[] exchange(String method, String path, String body) throws IOException {
        HttpURLConnection connection = (HttpURLConnection) new URL(api + path).openConnection();
        if (tls != null && connection instanceof HttpsURLConnection) {
            ((HttpsURLConnection) connection).setSSLSocketFactory(tls.coordinator());
        }
        connection.setRequestMethod(method);
        connection.setConnectTimeout(TIMEOUT_MILLIS);
        connection.setReadTimeout(TIMEOUT_MILLIS);
        if (body != null) {
            connection.setDoOutput(true);
            connection.setRequestProperty("Content-Type", "application/json");
            try (OutputStream out = connection.getOutputStream()) {
                out.write(body.getBytes(StandardCharsets.UTF_8));
            }
        }
        int status = connection.getResponseCode();
        // Reading the answer to its end lets the connection serve the next request.
        byte[] answer;
        try (InputStream in = status >= 400 ? connection.getErrorStream() : connection.getInputStream()) {
            answer = readAll(in);
        }
        if (status >= 300) {
            throw new Refusal(status, detail(answer));
        }
        return answer;
    }

    /** The message in a problem document. */
    private static String detail(byte[] answer) {
        try {
            String detail = JSON.readTree(answer).path("detail").asText();
            return detail.isEmpty() ? "no reason" : detail;
        } catch (IOException e) {
            return "an answer that is not the coordinator's; help: spark.weir.coordinator is the address of its API";
        }
    }

    private static byte[] readAll(InputStream in) throws IOException {
        ByteArrayOutputStream answer = new ByteArrayOutputStream();
        byte[] bytes = new byte[4096];
        for (int n; in != null && (n = in.read(bytes)) >= 0; ) {
            answer.write(bytes, 0, n);
        }
        return answer.toByteArray();
    }
}

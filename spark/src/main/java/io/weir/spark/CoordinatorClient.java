package io.weir.spark;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.HttpURLConnection;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.util.StringJoiner;

/** Registers coflows over the coordinator's API: docs/api.md. Certificates are those of the JVM's properties {@code javax.net.ssl}. */
final class CoordinatorClient {
    private static final int TIMEOUT_MILLIS = 3_000;

    private final String api;
    private final String service;

    CoordinatorClient(String api, String service) {
        this.api = api.endsWith("/") ? api.substring(0, api.length() - 1) : api;
        this.service = service;
    }

    /** Registers a coflow, or updates the flows of a registered one. `list`: the encoded flows. */
    void put(String coflow, String list, boolean isRegistered) throws IOException {
        String owner = service == null ? "" : "\"service\":" + quote(service) + ",";
        String registration = "{" + owner + "\"flows\":" + list + "}";
        int status = isRegistered ? send("PUT", coflow + "/flows", list) : send("PUT", coflow, registration);
        if (status == 404 && isRegistered) {
            // The coordinator has lost its store, or completed the coflow.
            status = send("PUT", coflow, registration);
        } else if (status == 409 && !isRegistered) {
            status = send("PUT", coflow + "/flows", list);
        }
        if (status >= 300) {
            throw new IOException("the coordinator answered " + status + " to coflow " + coflow);
        }
    }

    void delete(String coflow) throws IOException {
        send("DELETE", coflow, null);
    }

    /** Whether receivers have acknowledged all bytes of a coflow. */
    boolean hasCompleted(String coflow) throws IOException {
        StringBuilder body = new StringBuilder();
        return send("GET", coflow, null, body) == 200 && body.indexOf("\"completed\":true") >= 0;
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

    private int send(String method, String path, String body) throws IOException {
        return send(method, path, body, new StringBuilder());
    }

    private int send(String method, String path, String body, StringBuilder answer) throws IOException {
        // Characters that are special in a path must not change it.
        String encoded = path.replace("%", "%25").replace("?", "%3F").replace("#", "%23");
        HttpURLConnection connection = (HttpURLConnection) new URL(api + "/v1/coflows/" + encoded).openConnection();
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
        try (InputStream in = status >= 400 ? connection.getErrorStream() : connection.getInputStream()) {
            byte[] bytes = new byte[4096];
            for (int n; in != null && (n = in.read(bytes)) >= 0; ) {
                answer.append(new String(bytes, 0, n, StandardCharsets.ISO_8859_1));
            }
        }
        return status;
    }
}

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.OffsetAndMetadata;
import kafka.common.OffsetMetadataAndError;
import kafka.common.TopicAndPartition;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerIterator;
import kafka.consumer.KafkaStream;
import kafka.consumer.Whitelist;
import kafka.javaapi.ConsumerMetadataResponse;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.javaapi.producer.Producer;
import kafka.message.MessageAndMetadata;
import kafka.producer.KeyedMessage;
import kafka.producer.ProducerConfig;
import kafka.serializer.StringDecoder;
import kafka.utils.VerifiableProperties;

/**
 * The producer and the consumers of Kafka 0.8.2.2 in Scala, driven as driver_test.go says: one JSON command a line, one
 * answer a line. A member's records are [partition, offset, key, value, stream]: messages have no time then. Its argument is
 * ZOOKEEPER,BROKER: what zookeeper.connect and metadata.broker.list say.
 */
public class Old {
    static final ObjectMapper json = new ObjectMapper();
    static final PrintStream out = System.out;
    static String zooKeeper, broker;
    static final Map<String, Producer<String, String>> producers = new HashMap<>();
    static final List<ConsumerConnector> members = new ArrayList<>();

    static synchronized void say(Map<String, Object> line) throws Exception {
        out.println(json.writeValueAsString(line));
        out.flush();
    }

    static Properties properties(JsonNode command) {
        Properties p = new Properties();
        command.path("settings").fields().forEachRemaining(e -> p.put(e.getKey(), e.getValue().asText()));
        return p;
    }

    /** One stream of a member: hands on what comes, each message when the one before has been. */
    static void read(KafkaStream<String, String> stream, int member, int number) {
        try {
            for (ConsumerIterator<String, String> i = stream.iterator(); i.hasNext(); ) {
                MessageAndMetadata<String, String> m = i.next();
                Object[] record = {m.partition(), m.offset(), m.key(), m.message(), number};
                say(Map.of("member", member, "records", List.of(Arrays.asList(record))));
            }
        } catch (Exception e) {
            e.printStackTrace();
        }
    }

    static Object join(JsonNode c) {
        Properties p = properties(c);
        p.put("zookeeper.connect", zooKeeper);
        p.put("group.id", c.get("group").asText());
        p.putIfAbsent("auto.offset.reset", "smallest");
        ConsumerConnector connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(p));
        int streams = c.path("streams").asInt(1);
        StringDecoder text = new StringDecoder(new VerifiableProperties());
        List<KafkaStream<String, String>> all;
        if (c.has("filter")) {
            all = connector.createMessageStreamsByFilter(new Whitelist(c.get("filter").asText()), streams, text, text);
        } else {
            String topic = c.get("topic").asText();
            all = connector.createMessageStreams(Map.of(topic, streams), text, text).get(topic);
        }
        members.add(connector);
        for (int n = 0; n < all.size(); n++) {
            KafkaStream<String, String> stream = all.get(n);
            int member = members.size(), number = n;
            Thread t = new Thread(() -> read(stream, member, number));
            t.setDaemon(true);
            t.start();
        }
        return members.size();
    }

    static Object send(JsonNode c) {
        String codec = c.path("codec").asText("none");
        Producer<String, String> producer = producers.computeIfAbsent(codec, name -> {
            Properties p = properties(c);
            p.put("metadata.broker.list", broker);
            p.put("serializer.class", "kafka.serializer.StringEncoder");
            p.put("compression.codec", name);
            p.putIfAbsent("request.required.acks", "-1");
            p.putIfAbsent("message.send.max.retries", "50"); // a new leader may take the time of a session
            p.putIfAbsent("retry.backoff.ms", "200");
            return new Producer<>(new ProducerConfig(p));
        });
        List<KeyedMessage<String, String>> messages = new ArrayList<>();
        String topic = c.get("topic").asText();
        c.get("messages").forEach(m -> messages.add(new KeyedMessage<>(topic, m.get(0).asText(), m.get(1).asText())));
        producer.send(messages);
        return messages.size();
    }

    /** A SimpleConsumer to a broker, HOST:PORT. */
    static SimpleConsumer simple(JsonNode c) {
        String[] at = c.get("broker").asText().split(":");
        return new SimpleConsumer(at[0], Integer.parseInt(at[1]), 10000, 65536, "old");
    }

    static List<TopicAndPartition> partitions(JsonNode c) {
        List<TopicAndPartition> all = new ArrayList<>();
        c.get("partitions").forEach(n -> all.add(new TopicAndPartition(c.get("topic").asText(), n.asInt())));
        return all;
    }

    /** OffsetFetch: partition to [offset, error]. */
    static Object fetchOffsets(JsonNode c) {
        SimpleConsumer consumer = simple(c);
        try {
            Map<Integer, List<Long>> found = new TreeMap<>();
            Map<TopicAndPartition, OffsetMetadataAndError> answer = consumer.fetchOffsets(new OffsetFetchRequest(
                    c.get("group").asText(), partitions(c), (short) c.get("version").asInt(), 1, "old")).offsets();
            answer.forEach((at, o) -> found.put(at.partition(), List.of(o.offset(), (long) o.error())));
            return found;
        } finally {
            consumer.close();
        }
    }

    /** OffsetCommit of one offset for all the partitions: partition to error. */
    static Object commitOffsets(JsonNode c) {
        SimpleConsumer consumer = simple(c);
        try {
            Map<TopicAndPartition, OffsetAndMetadata> offsets = new LinkedHashMap<>();
            partitions(c).forEach(at -> offsets.put(at, new OffsetAndMetadata(c.get("offset").asLong(), "note", -1L)));
            Map<Integer, Object> errors = new TreeMap<>();
            Map<TopicAndPartition, Object> answer = consumer.commitOffsets(new OffsetCommitRequest(
                    c.get("group").asText(), offsets, 1, "old", (short) c.get("version").asInt())).errors();
            answer.forEach((at, error) -> errors.put(at.partition(), error));
            return errors;
        } finally {
            consumer.close();
        }
    }

    /** ListOffsets v0 of one partition. */
    static Object offsetsBefore(JsonNode c) {
        SimpleConsumer consumer = simple(c);
        try {
            TopicAndPartition at = partitions(c).get(0);
            Map<TopicAndPartition, PartitionOffsetRequestInfo> asked = new HashMap<>();
            asked.put(at, new PartitionOffsetRequestInfo(c.get("time").asLong(), c.get("count").asInt()));
            return consumer.getOffsetsBefore(new OffsetRequest(asked, kafka.api.OffsetRequest.CurrentVersion(), "old"))
                    .offsets(at.topic(), at.partition());
        } finally {
            consumer.close();
        }
    }

    static Object run(JsonNode c) throws Exception {
        switch (c.get("op").asText()) {
            case "join":
                return join(c);
            case "send":
                return send(c);
            case "commit":
                members.get(c.get("member").asInt() - 1).commitOffsets();
                return true;
            case "leave":
                members.get(c.get("member").asInt() - 1).shutdown();
                return true;
            case "fetch_offsets":
                return fetchOffsets(c);
            case "commit_offsets":
                return commitOffsets(c);
            case "offsets_before":
                return offsetsBefore(c);
            default:
                throw new IllegalArgumentException("no such command");
        }
    }

    public static void main(String[] args) throws Exception {
        zooKeeper = args[0].split(",")[0];
        broker = args[0].split(",")[1];
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            JsonNode c = json.readTree(line);
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("id", c.get("id").asInt());
            try {
                answer.put("value", run(c));
            } catch (Exception e) {
                e.printStackTrace();
                answer.put("error", e.toString());
            }
            say(answer);
        }
        members.forEach(ConsumerConnector::shutdown);
        producers.values().forEach(Producer::close);
        System.exit(0);
    }
}

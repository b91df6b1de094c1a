import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's transactional producers and what its admin client does with transactions, driven as driver_test.go says. Commands
 * run side by side, each on a thread of its own. A call of a producer is answered with "ok" or with the class of what it threw.
 */
public class Transactions {
    static final ObjectMapper json = new ObjectMapper();
    static final PrintStream out = System.out;
    final String bootstrap;
    final Admin admin;
    final Map<String, KafkaProducer<String, String>> producers = new ConcurrentHashMap<>();
    final Map<String, KafkaConsumer<String, String>> consumers = new ConcurrentHashMap<>();
    final Map<String, Copier> copiers = new ConcurrentHashMap<>();

    Transactions(String bootstrap) {
        this.bootstrap = bootstrap;
        admin = Admin.create(common(null));
    }

    Properties common(JsonNode settings) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("reconnect.backoff.max.ms", "300");
        p.put("enable.metrics.push", "false");
        if (settings != null) {
            settings.fields().forEachRemaining(f -> p.put(f.getKey(), f.getValue().asText()));
        }
        return p;
    }

    static synchronized void say(Map<String, Object> line) throws Exception {
        out.println(json.writeValueAsString(line));
        out.flush();
    }

    interface Call {
        void run() throws Exception;
    }

    /** What an exception is called: a plain KafkaException or one of a future says nothing by itself, so its cause follows. */
    static String name(Throwable e) {
        if (e instanceof ExecutionException && e.getCause() != null) {
            return name(e.getCause());
        }
        String s = e.getClass().getSimpleName();
        return e.getClass() == KafkaException.class && e.getCause() != null ? s + ": " + name(e.getCause()) : s;
    }

    static String outcome(Call c) {
        try {
            c.run();
            return "ok";
        } catch (Exception e) {
            System.err.println(e);
            return name(e);
        }
    }

    KafkaProducer<String, String> producer(String id, JsonNode settings) {
        Properties p = common(settings);
        p.put("transactional.id", id);
        p.putIfAbsent("linger.ms", "0");
        p.put("key.serializer", StringSerializer.class.getName());
        p.put("value.serializer", StringSerializer.class.getName());
        return new KafkaProducer<>(p);
    }

    KafkaConsumer<String, String> consumer(String group, JsonNode settings) {
        Properties p = common(settings);
        p.put("group.id", group);
        p.put("auto.offset.reset", "earliest");
        p.put("enable.auto.commit", "false");
        p.put("isolation.level", "read_committed");
        p.put("fetch.max.wait.ms", "100");
        if (!"consumer".equals(p.get("group.protocol"))) { // there the broker tells it
            p.putIfAbsent("heartbeat.interval.ms", "300");
        }
        p.put("key.deserializer", StringDeserializer.class.getName());
        p.put("value.deserializer", StringDeserializer.class.getName());
        return new KafkaConsumer<>(p);
    }

    /** Copies a topic in transactions that take the offsets with them, and begins anew where it cannot go on. */
    class Copier extends Thread {
        final String id, group, from, to;
        final JsonNode settings;
        volatile boolean stop;
        volatile int copied, anew;

        Copier(JsonNode a) {
            id = a.get("producer").asText();
            group = a.get("group").asText();
            from = a.get("from").asText();
            to = a.get("to").asText();
            settings = a.get("consumer");
            setDaemon(true);
        }

        @Override
        public void run() {
            for (; !stop; anew++) {
                try (KafkaProducer<String, String> p = producer(id, json.createObjectNode().put("transaction.timeout.ms", 6000));
                        KafkaConsumer<String, String> c = consumer(group, settings)) {
                    p.initTransactions();
                    c.subscribe(List.of(from));
                    while (!stop) {
                        step(p, c);
                    }
                } catch (KafkaException e) {
                    System.err.println(id + " begins anew: " + e);
                }
            }
        }

        void step(KafkaProducer<String, String> p, KafkaConsumer<String, String> c) {
            var records = c.poll(Duration.ofMillis(200));
            if (records.isEmpty()) {
                return;
            }
            Map<TopicPartition, OffsetAndMetadata> done = new TreeMap<>((x, y) -> x.toString().compareTo(y.toString()));
            p.beginTransaction();
            records.forEach(r -> {
                p.send(new ProducerRecord<>(to, r.key(), r.value().toUpperCase()));
                done.put(new TopicPartition(r.topic(), r.partition()), new OffsetAndMetadata(r.offset() + 1));
            });
            p.sendOffsetsToTransaction(done, c.groupMetadata());
            p.commitTransaction();
            copied += records.count();
        }
    }

    Object run(String op, JsonNode a) throws Exception {
        String name = a.path("name").asText(), topic = a.path("topic").asText();
        KafkaProducer<String, String> p = producers.get(name);
        TopicPartition tp = new TopicPartition(topic, a.path("partition").asInt());
        switch (op) {
            case "open":
                producers.put(name, producer(a.get("producer").asText(), a.get("settings")));
                return "ok";
            case "init":
                return outcome(p::initTransactions);
            case "begin":
                return outcome(p::beginTransaction);
            case "send":
                return outcome(() -> p.send(new ProducerRecord<>(topic, tp.partition(), null, a.get("value").asText())).get());
            case "offsets": {
                String group = a.get("group").asText(), by = a.path("member").asText();
                ConsumerGroupMetadata g = by.isEmpty() ? new ConsumerGroupMetadata(group)
                        : by.equals("unknown") ? new ConsumerGroupMetadata(group, 1, "nobody", Optional.empty()) : consumers.get(by).groupMetadata();
                return outcome(() -> p.sendOffsetsToTransaction(Map.of(tp, new OffsetAndMetadata(a.get("offset").asLong())), g));
            }
            case "commit":
                return outcome(p::commitTransaction);
            case "abort":
                return outcome(p::abortTransaction);
            case "close":
                return outcome(() -> producers.remove(name).close(Duration.ofSeconds(5)));
            case "join": { // a consumer that has its partitions when this returns
                KafkaConsumer<String, String> c = consumer(a.get("group").asText(), a.get("settings"));
                consumers.put(name, c);
                c.subscribe(List.of(topic));
                for (int i = 0; c.assignment().isEmpty() && i < 200; i++) {
                    c.poll(Duration.ofMillis(100));
                }
                return c.groupMetadata().memberId();
            }
            case "leave":
                return outcome(() -> consumers.remove(name).close());
            case "copy":
                copiers.put(name, new Copier(a));
                copiers.get(name).start();
                return "ok";
            case "copied":
                return copiers.values().stream().mapToInt(c -> c.copied).sum();
            case "stop":
                copiers.values().forEach(c -> c.stop = true);
                for (Copier c : copiers.values()) {
                    c.join(20_000);
                }
                return copiers.values().stream().mapToInt(c -> c.anew).sum();
            default:
                return administer(op, a, tp);
        }
    }

    Object administer(String op, JsonNode a, TopicPartition tp) throws Exception {
        switch (op) {
            case "list": {
                ListTransactionsOptions o = new ListTransactionsOptions();
                Set<TransactionState> states = new HashSet<>();
                a.path("states").forEach(s -> states.add(TransactionState.parse(s.asText())));
                Set<Long> ids = new HashSet<>();
                a.path("ids").forEach(i -> ids.add(i.asLong()));
                o.filterStates(states).filterProducerIds(ids);
                if (a.has("duration")) {
                    o.filterOnDuration(a.get("duration").asLong());
                }
                if (a.has("pattern")) { // not in 3.9
                    ListTransactionsOptions.class.getMethod("filterOnTransactionalIdPattern", String.class).invoke(o, a.get("pattern").asText());
                }
                Map<String, String> all = new TreeMap<>();
                try {
                    for (TransactionListing l : admin.listTransactions(o).all().get(20, TimeUnit.SECONDS)) {
                        all.put(l.transactionalId(), l.state().toString());
                    }
                } catch (ExecutionException e) {
                    all.put("thrown", name(e));
                }
                return all;
            }
            case "describe": {
                Map<String, Object> all = new LinkedHashMap<>();
                try {
                    TransactionDescription d = admin.describeTransactions(List.of(a.get("producer").asText())).all().get(20, TimeUnit.SECONDS).values().iterator().next();
                    List<String> partitions = new ArrayList<>();
                    d.topicPartitions().forEach(t -> partitions.add(t.toString()));
                    partitions.sort(null);
                    all.put("state", d.state().toString());
                    all.put("id", d.producerId());
                    all.put("epoch", d.producerEpoch());
                    all.put("timeout", d.transactionTimeoutMs());
                    all.put("started", d.transactionStartTimeMs().isPresent());
                    all.put("partitions", partitions);
                } catch (ExecutionException e) {
                    all.put("thrown", name(e));
                }
                return all;
            }
            case "producers": { // those of a partition, with what is open of them
                List<Map<String, Object>> all = new ArrayList<>();
                for (ProducerState s : admin.describeProducers(List.of(tp)).partitionResult(tp).get(20, TimeUnit.SECONDS).activeProducers()) {
                    Map<String, Object> one = new LinkedHashMap<>();
                    one.put("id", s.producerId());
                    one.put("epoch", s.producerEpoch());
                    one.put("sequence", s.lastSequence());
                    one.put("coordinator", s.coordinatorEpoch().orElse(-1));
                    one.put("start", s.currentTransactionStartOffset().orElse(-1));
                    all.add(one);
                }
                all.sort(Comparator.comparingLong(one -> (Long) one.get("id")));
                return all;
            }
            case "fence":
                return outcome(() -> admin.fenceProducers(List.of(a.get("producer").asText())).all().get(20, TimeUnit.SECONDS));
            case "abort_partition":
                return outcome(() -> admin.abortTransaction(new AbortTransactionSpec(tp, a.get("pid").asLong(), (short) a.get("epoch").asInt(), a.get("coordinator").asInt())).all().get(20, TimeUnit.SECONDS));
            case "terminate": { // not in 3.9
                Object r = Admin.class.getMethod("forceTerminateTransaction", String.class).invoke(admin, a.get("producer").asText());
                KafkaFuture<?> f = (KafkaFuture<?>) r.getClass().getMethod("result").invoke(r);
                return outcome(() -> f.get(20, TimeUnit.SECONDS));
            }
            default:
                throw new IllegalArgumentException("unknown command");
        }
    }

    public static void main(String[] args) throws Exception {
        System.setOut(System.err); // what a library prints is no answer
        Transactions d = new Transactions(args[args.length - 1]);
        ExecutorService threads = Executors.newCachedThreadPool();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            JsonNode a = json.readTree(line);
            threads.submit(() -> {
                Map<String, Object> answer = new LinkedHashMap<>();
                answer.put("id", a.get("id").asInt());
                try {
                    answer.put("value", d.run(a.get("op").asText(), a));
                } catch (Exception e) {
                    e.printStackTrace();
                    answer.put("error", a.get("op").asText() + ": " + e);
                }
                say(answer);
                return null;
            });
        }
        System.exit(0);
    }
}

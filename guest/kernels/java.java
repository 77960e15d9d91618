// Warm Java interpreter of a guest, based on the JDK's JShell. The contract is spec/kernel-protocol.md. The control
// channel is a socket, which Java cannot open: pipes lead to and from it, on descriptors 5 and 6.

import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;
import jdk.jshell.EvalException;
import jdk.jshell.JShell;
import jdk.jshell.Snippet;
import jdk.jshell.SnippetEvent;
import jdk.jshell.SourceCodeAnalysis;
import jdk.jshell.UnresolvedReferenceException;
import sun.misc.Signal;

final class Kernel {
  private static final int MOST_TEXT = 1 << 20;
  private static final int MOST_NAME = 1 << 10;
  /** The imports of the jshell tool */
  private static final List<String> IMPORTS =
      List.of("java.io.*", "java.math.*", "java.net.*", "java.nio.file.*", "java.util.*", "java.util.concurrent.*",
          "java.util.function.*", "java.util.regex.*", "java.util.stream.*");

  private final FileOutputStream output = new FileOutputStream("/proc/self/fd/6");
  private final JShell shell = JShell.builder().executionEngine("local").out(System.out).err(System.err).build();
  private final SourceCodeAnalysis analysis = shell.sourceCodeAnalysis();
  private long count = 0;
  private volatile boolean isRunning = false;
  private volatile boolean wasInterrupted = false;

  Kernel() throws IOException {}

  public static void main(String[] args) throws Exception {
    new Kernel().serve();
  }

  private void serve() throws IOException {
    Signal.handle(new Signal("INT"), signal -> {
      if (!isRunning) return;
      wasInterrupted = true;
      shell.stop();
    });
    for (String name : IMPORTS) shell.eval("import " + name + ";");
    // loads the compiler once for all forks
    shell.eval("1 + 1");
    shell.snippets().filter(snippet -> snippet.kind() == Snippet.Kind.VAR).toList().forEach(shell::drop);
    send(fields("event", "ready", "language", "java", "version", System.getProperty("java.version")));
    try (var input = new BufferedReader(new InputStreamReader(new FileInputStream("/proc/self/fd/5"), StandardCharsets.UTF_8))) {
      for (String line; (line = input.readLine()) != null; ) {
        try {
          if (new Json(line).value() instanceof Map<?, ?> request) handle(request);
        } catch (IllegalArgumentException expected) {
          // an incomplete message whose sender has ended
        }
      }
    }
    // threads of the code must not keep the JVM running
    Runtime.getRuntime().halt(0);
  }

  private void handle(Map<?, ?> request) throws IOException {
    if ("eval".equals(request.get("op"))) answer(request);
    else if ("environment".equals(request.get("op"))) setProperties(request.get("env"));
    else if ("reseed".equals(request.get("op"))) reseed(request);
  }

  private void answer(Map<?, ?> request) throws IOException {
    if (!Boolean.TRUE.equals(request.get("warm"))) count++;
    Map<String, String> before = setProperties(request.get("env"));
    wasInterrupted = false;
    isRunning = true;
    Map<String, Object> message;
    try {
      message = run(String.valueOf(request.get("code")));
    } finally {
      isRunning = false;
    }
    if (wasInterrupted) message = failure("KeyboardInterrupt", "", "KeyboardInterrupt");
    before.forEach((name, value) -> {
      if (value == null) System.clearProperty(name);
      else System.setProperty(name, value);
    });
    System.out.flush();
    System.err.flush();
    message.put("id", request.get("id"));
    message.put("count", count);
    send(message);
  }

  /** Runs one snippet after the other, up to the first that fails; the last value is the result */
  private Map<String, Object> run(String code) {
    String text = null;
    for (String rest = code; !rest.isBlank() && !wasInterrupted; ) {
      var next = analysis.analyzeCompletion(rest);
      String source = next.source() == null ? rest : next.source();
      text = null;
      for (SnippetEvent event : shell.eval(source)) {
        // other events concern earlier snippets
        if (event.causeSnippet() != null) continue;
        var problem = problemOf(event);
        if (problem != null) return problem;
        text = valueOf(event);
      }
      rest = next.source() == null ? "" : next.remaining();
    }
    return fields("event", "result", "text", text == null ? null : cut(text, MOST_TEXT));
  }

  private static String valueOf(SnippetEvent event) {
    return switch (event.snippet().subKind()) {
      case TEMP_VAR_EXPRESSION_SUBKIND, VAR_VALUE_SUBKIND, OTHER_EXPRESSION_SUBKIND ->
          event.value() == null || event.value().isEmpty() || event.value().equals("null") ? null : event.value();
      default -> null;
    };
  }

  private Map<String, Object> problemOf(SnippetEvent event) {
    if (event.status() == Snippet.Status.REJECTED) {
      List<String> said = shell.diagnostics(event.snippet()).map(each -> each.getMessage(Locale.ENGLISH)).toList();
      String message = said.isEmpty() ? "the code is not complete" : String.join("\n", said);
      return failure("CompilationException", message, "CompilationException: " + message + "\n" + event.snippet().source());
    }
    Throwable thrown = event.exception();
    if (thrown == null) return null;
    if (thrown instanceof UnresolvedReferenceException) {
      List<String> missing = shell.unresolvedDependencies(((UnresolvedReferenceException) thrown).getSnippet()).toList();
      String message = "not defined: " + String.join(", ", missing);
      return failure("UnresolvedReferenceException", message, "UnresolvedReferenceException: " + message);
    }
    String name = thrown instanceof EvalException evaluated ? evaluated.getExceptionClassName() : thrown.getClass().getName();
    String message = thrown.getMessage() == null ? "" : thrown.getMessage();
    var lines = new ArrayList<String>(List.of(message.isEmpty() ? name : name + ": " + message));
    for (StackTraceElement frame : thrown.getStackTrace()) lines.add("    at " + frame);
    return failure(name, message, String.join("\n", lines));
  }

  private static Map<String, Object> failure(String type, String message, String traceback) {
    return fields("event", "error", "type", cut(type, MOST_NAME), "message", cut(message, MOST_TEXT), "traceback",
        cut(traceback, MOST_TEXT));
  }

  /** A running JVM cannot change its environment: as in E2B's interpreter, variables become properties. Returns the old values */
  private static Map<String, String> setProperties(Object env) {
    var before = new HashMap<String, String>();
    if (env instanceof Map<?, ?> variables)
      variables.forEach((name, value) -> before.put(String.valueOf(name), System.setProperty(String.valueOf(name), String.valueOf(value))));
    return before;
  }

  // Generators

  private void reseed(Map<?, ?> request) throws IOException {
    String seed = String.valueOf(request.get("seed"));
    var done = new ArrayList<Object>();
    seedWith(done, "Math.random", () -> {
      Class<?> holder = Class.forName("java.lang.Math$RandomNumberGeneratorHolder");
      ((Random) open(holder, "randomNumberGenerator").get(null)).setSeed(word(seed, 0));
    });
    seedWith(done, "java.util.Random", () -> ((AtomicLong) open(Random.class, "seedUniquifier").get(null)).set(word(seed, 1)));
    seedWith(done, "ThreadLocalRandom", () -> {
      ((AtomicLong) open(ThreadLocalRandom.class, "seeder").get(null)).set(word(seed, 2));
      // reseeded in each thread at its next use; this thread is the one that runs code
      open(Thread.class, "threadLocalRandomProbe").setInt(Thread.currentThread(), 0);
    });
    send(fields("event", "reseeded", "id", request.get("id"), "generators", done));
  }

  private interface Work {
    void run() throws ReflectiveOperationException;
  }

  private static void seedWith(List<Object> done, String name, Work work) {
    try {
      work.run();
      done.add(name);
    } catch (ReflectiveOperationException | RuntimeException expected) {
      // another JDK keeps its state elsewhere: the certificate does not name the generator then
    }
  }

  private static Field open(Class<?> type, String name) throws NoSuchFieldException {
    Field field = type.getDeclaredField(name);
    field.setAccessible(true);
    return field;
  }

  private static long word(String hex, int at) {
    return Long.parseUnsignedLong(hex.substring(16 * at, 16 * at + 16), 16);
  }

  // Messages

  private void send(Map<String, Object> message) throws IOException {
    output.write((Json.text(message) + "\n").getBytes(StandardCharsets.UTF_8));
    output.flush();
  }

  private static Map<String, Object> fields(Object... pairs) {
    var fields = new LinkedHashMap<String, Object>();
    for (int at = 0; at < pairs.length; at += 2) fields.put((String) pairs[at], pairs[at + 1]);
    return fields;
  }

  private static String cut(String text, int most) {
    return text.length() > most ? text.substring(0, most) + "…" : text;
  }
}

/** The subset of JSON that messages need; the JDK has no JSON */
final class Json {
  private final String text;
  private int at = 0;

  Json(String text) {
    this.text = text;
  }

  /** Throws IllegalArgumentException */
  Object value() {
    Object value = read();
    skip();
    if (at < text.length()) throw new IllegalArgumentException("more than one value");
    return value;
  }

  private Object read() {
    skip();
    if (at >= text.length()) throw new IllegalArgumentException("it breaks off");
    char first = text.charAt(at);
    if (first == '{') return object();
    if (first == '[') return array();
    if (first == '"') return string();
    int from = at;
    while (at < text.length() && ",]} \t".indexOf(text.charAt(at)) < 0) at++;
    String word = text.substring(from, at);
    if (word.equals("true") || word.equals("false")) return Boolean.valueOf(word);
    if (word.equals("null")) return null;
    return word.matches("-?\\d+") ? (Object) Long.valueOf(word) : Double.valueOf(word);
  }

  private Map<String, Object> object() {
    var fields = new LinkedHashMap<String, Object>();
    at++;
    while (!ends('}')) {
      String name = string();
      take(':');
      fields.put(name, read());
      if (!ends('}')) take(',');
      else break;
    }
    at++;
    return fields;
  }

  private List<Object> array() {
    var items = new ArrayList<Object>();
    at++;
    while (!ends(']')) {
      items.add(read());
      if (!ends(']')) take(',');
      else break;
    }
    at++;
    return items;
  }

  private String string() {
    take('"');
    var out = new StringBuilder();
    for (; at < text.length() && text.charAt(at) != '"'; at++) {
      char character = text.charAt(at);
      if (character != '\\') {
        out.append(character);
        continue;
      }
      if (++at >= text.length()) break;
      char escaped = text.charAt(at);
      int known = "bfnrt".indexOf(escaped);
      if (known >= 0) out.append("\b\f\n\r\t".charAt(known));
      else if (escaped != 'u') out.append(escaped);
      else {
        if (at + 4 >= text.length()) break;
        out.append((char) Integer.parseInt(text.substring(at + 1, at + 5), 16));
        at += 4;
      }
    }
    take('"');
    return out.toString();
  }

  private boolean ends(char end) {
    skip();
    if (at >= text.length()) throw new IllegalArgumentException("it breaks off");
    return text.charAt(at) == end;
  }

  private void take(char wanted) {
    skip();
    if (at >= text.length() || text.charAt(at) != wanted) throw new IllegalArgumentException("no " + wanted);
    at++;
  }

  private void skip() {
    while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) at++;
  }

  static String text(Object value) {
    if (value instanceof Map<?, ?> fields) {
      var parts = new ArrayList<String>();
      fields.forEach((name, each) -> parts.add(text(name) + ":" + text(each)));
      return "{" + String.join(",", parts) + "}";
    }
    if (value instanceof List<?> items) return "[" + String.join(",", items.stream().map(Json::text).toList()) + "]";
    if (!(value instanceof String said)) return String.valueOf(value);
    var out = new StringBuilder("\"");
    for (char character : said.toCharArray()) {
      if (character == '"' || character == '\\') out.append('\\').append(character);
      else if (character < ' ' || Character.isSurrogate(character)) out.append(String.format("\\u%04x", (int) character));
      else out.append(character);
    }
    return out.append('"').toString();
  }
}

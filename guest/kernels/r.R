# Warm R interpreter of a guest. The contract is spec/kernel-protocol.md. The control channel is a socket, which R
# cannot open: pipes lead to and from it, on descriptors 5 and 6.

local({
  if (!requireNamespace("jsonlite", quietly = TRUE)) {
    message("its R has no package jsonlite (Debian's package r-cran-jsonlite)")
    quit(save = "no", status = 127)
  }
  most_text <- 1048576L
  input <- file("/proc/self/fd/5", open = "r", blocking = TRUE, raw = TRUE)
  output <- file("/proc/self/fd/6", open = "wb", raw = TRUE)
  count <- 0L

  # `id` as received: it has more digits than R keeps of a number
  send <- function(event, fields, id = NULL) {
    text <- jsonlite::toJSON(c(list(event = event), fields), auto_unbox = TRUE, null = "null", na = "null", digits = NA)
    if (!is.null(id)) text <- sub("{", paste0("{\"id\":", id, ","), text, fixed = TRUE)
    writeBin(charToRaw(paste0(enc2utf8(text), "\n")), output)
    flush(output)
  }

  cut_off <- function(text) {
    text <- paste(text, collapse = "\n")
    if (nchar(text) > most_text) paste0(substr(text, 1L, most_text), "\u2026") else text
  }

  # Sets environment variables; returns a function that restores them
  set_environment <- function(env) {
    if (length(env) == 0L) return(function() NULL)
    before <- Sys.getenv(names(env), unset = NA, names = TRUE)
    do.call(Sys.setenv, env)
    function() {
      Sys.unsetenv(names(before)[is.na(before)])
      kept <- before[!is.na(before)]
      if (length(kept) > 0L) do.call(Sys.setenv, as.list(kept))
    }
  }

  # Figures

  folder <- tempfile("figures")
  options(device = function(...) {
    dir.create(folder, showWarnings = FALSE)
    grDevices::png(filename = file.path(folder, "figure%04d.png"), width = 800, height = 600, type = "cairo")
  })

  show_figures <- function(id) {
    grDevices::graphics.off()
    for (path in sort(list.files(folder, full.names = TRUE))) {
      bytes <- readBin(path, "raw", file.size(path))
      send("display", list(data = list("image/png" = gsub("\n", "", jsonlite::base64_enc(bytes), fixed = TRUE))), id)
    }
    unlink(folder, recursive = TRUE)
  }

  # Evaluation

  # A value that JSON preserves
  as_json <- function(value) {
    is_plain <- is.atomic(value) && length(value) == 1L && is.null(attributes(value)) && !is.na(value)
    if (is_plain && (is.character(value) || is.logical(value) || (is.numeric(value) && is.finite(value)))) value
  }

  # Prints each visible value as R's prompt does, except the last one, which is the result
  run <- function(code) {
    value <- list(visible = FALSE)
    expressions <- parse(text = code, keep.source = TRUE)
    for (at in seq_along(expressions)) {
      if (value$visible) print(value$value)
      value <- withVisible(eval(expressions[[at]], globalenv()))
    }
    if (!value$visible || is.null(value$value)) return(list(text = NULL))
    json <- as_json(value$value)
    c(list(text = cut_off(utils::capture.output(print(value$value)))), if (!is.null(json)) list(json = json))
  }

  failure <- function(condition, calls) {
    if (inherits(condition, "interrupt")) return(list(type = "KeyboardInterrupt", message = "", traceback = "KeyboardInterrupt"))
    message <- cut_off(conditionMessage(condition))
    # the frames of the interpreter come first, and those of the handlers last
    own <- which(vapply(calls, identical, NA, quote(eval(expressions[[at]], globalenv()))))
    frames <- if (length(own) > 0L) calls[-seq_len(max(own))] else list()
    is_users <- function(call) {
      !is.function(call[[1L]]) && !(is.name(call[[1L]]) && as.character(call[[1L]]) %in% c(".handleSimpleError", "h", "stop"))
    }
    frames <- Filter(is_users, frames)
    lines <- vapply(frames, function(call) paste(deparse(call, nlines = 1L), collapse = ""), "")
    call <- conditionCall(condition)
    is_own <- is.null(call) || identical(call[[1L]], quote(eval)) || identical(call[[1L]], quote(parse))
    head <- if (is_own) "Error: " else paste0("Error in ", deparse(call, nlines = 1L)[[1L]], " : ")
    list(type = class(condition)[[1L]], message = message, traceback = cut_off(c(paste0(head, message), lines)))
  }

  answer <- function(request) {
    if (!isTRUE(request$warm)) count <<- count + 1L
    restore <- set_environment(request$env)
    calls <- list()
    # discards a signal that came while no code ran
    tryCatch(allowInterrupts(Sys.sleep(0)), interrupt = function(condition) NULL)
    outcome <- tryCatch(
      withCallingHandlers(
        list(event = "result", fields = allowInterrupts(run(request$code))),
        error = function(condition) calls <<- sys.calls()
      ),
      error = function(condition) list(event = "error", fields = failure(condition, calls)),
      interrupt = function(condition) list(event = "error", fields = failure(condition, calls))
    )
    restore()
    flush(stdout())
    flush(stderr())
    tryCatch(show_figures(request$id), error = function(condition) NULL)
    send(outcome$event, c(list(count = count), outcome$fields), request$id)
  }

  reseed <- function(request) {
    # seven digits fit into R's integers
    words <- strtoi(substring(request$seed, seq(1L, 57L, 7L), seq(7L, 63L, 7L)), 16L)
    set.seed(words[[1L]])
    state <- get(".Random.seed", envir = globalenv())
    places <- seq(3L, length.out = length(words))
    if (length(state) > max(places)) {
      state[places] <- bitwXor(state[places], words)
      assign(".Random.seed", state, envir = globalenv())
    }
    send("reseeded", list(generators = list("R")), request$id)
  }

  # quit() must not end the kernel: it ends the code
  leave <- function(...) stop(structure(class = c("SystemExit", "error", "condition"), list(message = "quit()", call = NULL)))
  for (name in c("q", "quit")) {
    unlockBinding(name, baseenv())
    assign(name, leave, envir = baseenv())
  }
  options(warn = 1, keep.source = TRUE, crayon.enabled = FALSE)
  send("ready", list(language = "r", version = as.character(getRversion())))

  suspendInterrupts(repeat {
    line <- readLines(input, n = 1L, warn = FALSE, encoding = "UTF-8")
    if (length(line) == 0L) break
    request <- tryCatch(jsonlite::fromJSON(line, simplifyVector = FALSE), error = function(condition) NULL)
    if (!is.list(request) || is.null(request$op)) next
    request$id <- sub("^\\{\"op\":\"[a-z]+\",\"id\":([0-9]+).*$", "\\1", line)
    switch(request$op,
      eval = answer(request),
      environment = do.call(Sys.setenv, request$env),
      reseed = reseed(request),
      NULL
    )
  })
})

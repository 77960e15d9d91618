# Who may use this server is forkd's to say. Its own checks of Host and Origin stay: they keep pages of the browser beside
# it away. Its token and its cookie against forgery would only be in the way of programs, and add nothing to that.
c.ServerApp.ip = "127.0.0.1"
c.ServerApp.port = 8888
c.ServerApp.port_retries = 0
c.ServerApp.open_browser = False
c.ServerApp.token = ""
c.ServerApp.password = ""
c.ServerApp.disable_check_xsrf = True
c.ServerApp.root_dir = "/home/agent"
c.ServerApp.terminado_settings = {"shell_command": ["/bin/bash"]}

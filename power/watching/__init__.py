"""What draws and meters show that no report states. It only ever reduces what may be drawn."""
